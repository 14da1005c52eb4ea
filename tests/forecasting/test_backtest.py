"""Back-testing against the simple references."""

import numpy as np

from smnn.forecasting import Forecaster, backtest


def test_a_seasonal_series() -> None:
    t = np.arange(160)
    y = 10 + 3 * np.sin(2 * np.pi * t / 12) + 0.3 * np.random.default_rng(0).normal(size=160)
    found = backtest(y, horizon=12, origins=4, forecaster=Forecaster(season=12))
    assert len(found.origins) == 4
    errors = {name: np.sqrt(np.nanmean(e**2)) for name, e in found.errors.items()}
    assert errors["forecaster"] < 0.5 < errors["last value"]
    assert errors["forecaster"] <= 1.1 * min(errors.values())
    assert 0.7 <= np.mean(found.inside) <= 1.0
