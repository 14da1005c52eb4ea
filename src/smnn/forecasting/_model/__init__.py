"""The forecasting model: candidate equations, their selection, coupling and intervals."""
