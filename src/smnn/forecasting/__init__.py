"""Forecasting of time series by interpretable linear ODEs."""

from smnn.forecasting._backtest import Backtest, backtest, make_report
from smnn.forecasting._equation import Equation
from smnn.forecasting._forecast import Forecast
from smnn.forecasting._forecaster import Forecaster
from smnn.forecasting._groups import forecast_groups
from smnn.forecasting._read import read_series
from smnn.forecasting._time import SeriesError
from smnn.forecasting._view.report import ForecastReport

__all__ = [
    "Backtest",
    "Equation",
    "Forecast",
    "ForecastReport",
    "Forecaster",
    "SeriesError",
    "backtest",
    "forecast_groups",
    "make_report",
    "read_series",
]
