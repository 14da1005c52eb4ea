"""El Niño: a forecast of the Niño 3.4 index.

Monthly means of the weekly sea surface temperature in the region that defines El Niño, 1990 to
2020 (NOAA). The model is fitted to data up to August 2015 and forecasts one year: the strong El
Niño of that winter and its end. Seasons, trend and anomaly are linear ODEs, so the forecast is a
sum of interpretable components. Its interval is calibrated on earlier events; since that winter
was the strongest on record, some months are outside.
"""

import sys

import numpy as np

from smnn.datasets import sst
from smnn.forecasting import Forecaster


def run():
    data = sst.nino()
    months = data.time.astype("datetime64[M]")
    when = np.unique(months)
    y = np.array([data.sst[months == m, 2].mean() for m in when])
    past = when < np.datetime64("2015-09")

    model = Forecaster().fit(y[past], when[past].astype("datetime64[ns]"), horizon=12)
    forecast = model.predict()
    truth = y[~past][:12]
    print(model.equation())
    usual = np.array([y[past][i::12].mean() for i in range(12)])
    first = int(np.flatnonzero(~past)[0])
    climate = np.array([usual[(first + i) % 12] for i in range(12)])
    error, reference = (np.sqrt(np.mean((f - truth) ** 2)) for f in (forecast.mean, climate))
    inside = (truth >= forecast.lower) & (truth <= forecast.upper)
    print(f"RMS error {error:.2f} degrees; climatology {reference:.2f}")
    print(f"{inside.sum()} of 12 months inside the 90 % interval")
    return {"when": when, "y": y, "past": past, "forecast": forecast, "climate": climate,
            "error": error, "reference": reference, "inside": int(inside.sum())}  # fmt: skip


def draw(r):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    shown = (r["when"] >= np.datetime64("2012")) & (r["when"] < np.datetime64("2016-09"))
    axes.plot(r["when"][shown], r["y"][shown], "k.-", lw=0.6, ms=3, label="observed")
    f = r["forecast"]
    axes.fill_between(f.t, f.lower, f.upper, alpha=0.25, lw=0, label="90 %")
    axes.plot(f.t, f.mean, color="C0", label="forecast of August 2015")
    axes.plot(f.t, r["climate"], ":", color="0.5", label="usual year")
    axes.set(ylabel="degrees C", title="Niño 3.4")
    axes.legend(fontsize="small", loc="upper left", ncols=2)
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
