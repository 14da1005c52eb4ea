"""Forecasting of anybody's series by linear ODEs that can be read."""

from smnn.forecasting._backtest import Backtest as Backtest
from smnn.forecasting._backtest import backtest as backtest
from smnn.forecasting._forecast import Forecast as Forecast
from smnn.forecasting._forecaster import Forecaster as Forecaster
from smnn.forecasting._read import read_series as read_series
from smnn.forecasting._time import SeriesError as SeriesError
from smnn.forecasting._words import Equation as Equation

__all__ = [
    "Backtest",
    "Equation",
    "Forecast",
    "Forecaster",
    "SeriesError",
    "backtest",
    "read_series",
]
