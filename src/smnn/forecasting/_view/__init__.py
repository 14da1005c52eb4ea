"""Presentation of forecasts: charts, reports, and display in notebooks."""
