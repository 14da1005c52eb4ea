"""Linear probes of the learned parameters for climate zones, and estimates of effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from smnn._util.optional import require

ZONES = ("tropical", "temperate", "polar")
LIMITS = (23.5, 66.5)
"""Latitudes between the zones, in degrees."""
CLIP = 0.05
"""Propensities closer to 0 or 1 than this are clipped, and counted as lacking overlap."""
LEAST_OVERLAP = 0.5
"""Share of the units that must overlap for an effect to be considered identified."""
FOLDS = 5


def zones(lat: np.ndarray) -> np.ndarray:
    """`(N,)` indices into `ZONES` by latitude."""
    return np.digitize(np.abs(lat), LIMITS)


def _classifier() -> Any:
    linear = require("sklearn.linear_model", "probe the learned parameters")
    pipeline = require("sklearn.pipeline", "probe the learned parameters")
    scaling = require("sklearn.preprocessing", "probe the learned parameters")
    return pipeline.make_pipeline(
        scaling.StandardScaler(),
        linear.LogisticRegression(max_iter=2000, class_weight="balanced"),
    )


def accuracy(x: np.ndarray, label: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Balanced accuracy of a linear probe: the mean accuracy over the classes.

    Args:
        x: `(N, F)` parameters.
        label: `(N,)`.
        train: `(N,)` bool, the training samples.
        test: `(N,)` bool, the test samples.
    """
    probe = _classifier().fit(x[train], label[train])
    right = probe.predict(x[test]) == label[test]
    truth = label[test]
    return float(np.mean([right[truth == k].mean() for k in np.unique(truth)]))


def zone_probe(
    x: np.ndarray, lat: np.ndarray, lon: np.ndarray, decade: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """Accuracy of climate zones predicted from parameters, at held-out longitudes and decades.

    Args:
        x: `(N, F)` parameters of cells in chunks.
        lat: `(N,)`.
        lon: `(N,)` degrees east.
        decade: `(N,)` index of the chunk; the last is held out.
        seed: Random seed of the shuffled labels.
    """
    label = zones(lat)
    east = lon < 180
    late = decade == decade.max()
    shuffled = np.random.default_rng(seed).permutation(label)
    return {
        "zones": {name: int((label == k).sum()) for k, name in enumerate(ZONES)},
        "held_out_longitudes": accuracy(x, label, east, ~east),
        "held_out_decade": accuracy(x, label, ~late, late),
        "held_out_both": accuracy(x, label, east & ~late, ~east & late),
        "shuffled_labels": accuracy(x, shuffled, east & ~late, ~east & late),
        "chance": 1 / len(np.unique(label)),
    }


@dataclass(frozen=True)
class Effect:
    """Estimated effect of a treatment, and the overlap of the groups."""

    effect: float
    """Cross-fitted augmented inverse propensity weighting."""
    error: float
    """Cluster-robust standard error of the effect."""
    naive: float
    """Difference of the means."""
    overlap: float
    """Share of the units whose propensity lies between `CLIP` and `1 - CLIP`."""
    effective: tuple[float, float]
    """Effective sample sizes of the weighted control and treated groups."""
    counts: tuple[int, int]
    """Sample sizes of both groups."""
    propensity: np.ndarray
    """`(N,)`."""
    treated: np.ndarray
    """`(N,)` bool."""

    @property
    def believable(self) -> bool:
        """Whether enough units of both groups overlap."""
        return self.overlap >= LEAST_OVERLAP

    def record(self) -> dict[str, Any]:
        """JSON-serializable record, with a histogram of the propensities."""
        edges = np.linspace(0, 1, 21)
        sides = [np.histogram(self.propensity[self.treated == k], edges)[0] for k in (False, True)]
        return {
            "effect": self.effect,
            "standard_error": self.error,
            "naive_difference": self.naive,
            "overlap": self.overlap,
            "effective_samples": list(self.effective),
            "samples": list(self.counts),
            "believable": self.believable,
            "propensity_histogram": {
                "edges": edges.tolist(),
                "control": sides[0].tolist(),
                "treated": sides[1].tolist(),
            },
        }


def effect(
    x: np.ndarray, treated: np.ndarray, y: np.ndarray, cluster: np.ndarray, seed: int = 0
) -> Effect:
    """Effect of a treatment on an outcome, given covariates.

    Propensities and outcomes of each unit are predicted by models fitted without its cluster.

    Args:
        x: `(N, F)` covariates.
        treated: `(N,)` bool.
        y: `(N,)` outcome.
        cluster: `(N,)` labels of dependent units, such as neighbours.
        seed: Random seed of the folds.
    """
    if treated.all() or not treated.any():
        raise ValueError("treated: got one group only; expected treated units and controls.")
    linear = require("sklearn.linear_model", "estimate an effect")
    names = np.unique(cluster)
    fold_of = np.random.default_rng(seed).permutation(len(names)) % FOLDS
    fold = fold_of[np.searchsorted(names, cluster)]
    p, outcome = np.empty(len(y)), np.empty((2, len(y)))
    for k in range(FOLDS):
        out, others = fold == k, fold != k
        model = _classifier()
        model.steps[-1][1].set_params(class_weight=None)
        p[out] = model.fit(x[others], treated[others]).predict_proba(x[out])[:, 1]
        for side in (0, 1):
            known = others & (treated == bool(side))
            outcome[side, out] = linear.Ridge(1.0).fit(x[known], y[known]).predict(x[out])
    q = np.clip(p, CLIP, 1 - CLIP)
    weight = np.where(treated, 1 / q, 1 / (1 - q))
    left = np.where(treated, y - outcome[1], y - outcome[0]) * weight
    each = outcome[1] - outcome[0] + np.where(treated, left, -left)
    value = float(each.mean())
    sums = np.array([(each - value)[cluster == c].sum() for c in names])
    groups = [weight[treated == bool(k)] for k in (0, 1)]
    return Effect(
        value,
        float(np.sqrt((sums**2).sum()) / len(y)),
        float(y[treated].mean() - y[~treated].mean()),
        float(((p > CLIP) & (p < 1 - CLIP)).mean()),
        (float(groups[0].sum() ** 2 / (groups[0] ** 2).sum()),
         float(groups[1].sum() ** 2 / (groups[1] ** 2).sum())),
        (int((~treated).sum()), int(treated.sum())),
        p,
        treated,
    )  # fmt: skip
