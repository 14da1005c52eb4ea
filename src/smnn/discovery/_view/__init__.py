"""Presentation of fitted models: charts, reports, and display in notebooks."""
