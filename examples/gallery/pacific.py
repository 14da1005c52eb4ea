"""No law for the temperature of the Pacific.

Forty years of monthly anomalies of sea surface temperature in the tropical Pacific (NOAA OISST).
What the atmosphere does is not in the data, so no equation in the temperature alone should be
found. The best candidates explain a tenth of the rates of change where they were not fitted, and
the verdict says so.
"""

import sys
import warnings

import numpy as np

from smnn.datasets import sst
from smnn.discovery import FieldDiscovery, VerdictWarning


def run():
    grid = sst.monthly()
    a, o = np.abs(grid.lat) <= 20, (grid.lon >= 150) & (grid.lon <= 270)
    u = grid.values[:, a][:, :, o].astype(float)
    month = np.arange(len(u)) % 12
    for m in range(12):
        u[month == m] -= u[month == m].mean(0)
    years = (grid.time - grid.time[0]) / np.timedelta64(1, "D") / 365.25
    # Axes (time, x, y): longitude first, latitude from south to north.
    u = np.moveaxis(u[:, ::-1], 1, 2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)  # printed below
        model = FieldDiscovery().fit(u, t=years, x=grid.lon[o], y=grid.lat[a][::-1])
    print(f"Verdict: {model.verdict_.level}")
    explained = model.report_["explained"][0]
    print(f"{100 * explained:.0f} % of the rates of change explained where they were not fitted")
    return {"model": model, "explained": explained, "years": years, "u": u}


def draw(r):
    import matplotlib.pyplot as plt

    model = r["model"]
    figure, axes = plt.subplots(2, 1, figsize=(8, 4), layout="constrained", sharex=True)
    last = len(r["years"]) - 86  # November 2015, a strong El Niño
    lon, lat = model.axes_
    for ax, (title, u) in zip(axes, [("anomaly, November 2015", model.data_),
                                     ("without noise", model.denoised_)]):  # fmt: skip
        image = ax.pcolormesh(lon, lat, u[0][last, ..., 0].T, cmap="RdBu_r", vmin=-3, vmax=3)
        ax.set_title(title, fontsize=10)
        ax.set_ylabel("latitude")
    axes[1].set_xlabel("longitude")
    figure.colorbar(image, ax=axes, label="degrees C")
    return figure


if __name__ == "__main__":
    result = run()
    if len(sys.argv) > 1:
        draw(result).savefig(sys.argv[1])
