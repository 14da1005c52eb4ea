"""Forecasting of time series by interpretable linear ODEs."""

from smnn.forecasting._backtest import Backtest as Backtest
from smnn.forecasting._backtest import backtest as backtest
from smnn.forecasting._forecast import Forecast as Forecast
from smnn.forecasting._forecaster import Forecaster as Forecaster
from smnn.forecasting._model.equation import Equation as Equation
from smnn.forecasting._read import read_series as read_series
from smnn.forecasting._report import ForecastReport as ForecastReport
from smnn.forecasting._report import make_report as make_report
from smnn.forecasting._time import SeriesError as SeriesError

__all__ = [
    "Backtest",
    "Equation",
    "Forecast",
    "ForecastReport",
    "Forecaster",
    "SeriesError",
    "backtest",
    "make_report",
    "read_series",
]
