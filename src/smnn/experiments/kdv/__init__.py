"""Forecasts of waves on a circle: the Korteweg-de Vries equation."""
