"""Sea surface temperature of one grid cell.

Forty years of monthly sea surface temperature in one North Atlantic cell of NOAA's OISST grid. The
model is fitted up to 2019, describes the components that it found (a seasonal cycle, a trend, the
decay time of anomalies), and forecasts the following three years.
"""

import sys

import numpy as np

from smnn.datasets import sst
from smnn.forecasting import Forecaster

LAT, LON = 41.25, 318.75  # degrees north and east


def run():
    grid = sst.monthly()
    a, o = np.abs(grid.lat - LAT).argmin(), np.abs(grid.lon - LON).argmin()
    y = grid.values[:, a, o].astype(float)
    past = grid.time < np.datetime64("2020-01-01")

    model = Forecaster().fit(y[past], grid.time[past], horizon=36)
    forecast = model.predict()
    truth = y[~past][:36]
    equation = model.equation()
    print(equation)
    error = np.sqrt(np.mean((forecast.mean - truth) ** 2))
    inside = np.mean((truth >= forecast.lower) & (truth <= forecast.upper))
    print(f"RMS error {error:.2f} degrees, standard deviation of the data {y.std():.2f}")
    print(f"{inside:.0%} of the months inside the 90 % interval")
    return {"time": grid.time, "y": y, "past": past, "forecast": forecast, "error": error,
            "inside": inside, "equation": equation, "truth": truth}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8, 3.2), layout="constrained", width_ratios=(2, 1)
    )
    f, shown = r["forecast"], r["time"] >= np.datetime64("2015")
    left.plot(r["time"][shown], r["y"][shown], "k.", ms=3, label="observed")
    left.fill_between(f.t, f.lower, f.upper, alpha=0.25, lw=0, label="90 %")
    left.plot(f.t, f.mean, color="C0", lw=0.9, label="forecast")
    left.set(ylabel="degrees C", title="41 N, 41 W")
    left.legend(fontsize="small", loc="upper left", ncols=3)
    left.set_ylim(top=left.get_ylim()[1] + 2)
    for name, part in f.components.items():
        right.plot(f.t[:13], part[:13] - part.mean(), label=name)
    right.tick_params(axis="x", rotation=45)
    right.set_title("components, centred")
    right.legend(fontsize="small")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
