"""The M4 competition: point forecasts and prediction intervals by its official definitions."""
