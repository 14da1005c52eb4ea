"""Verdicts: what is claimed about equations that were found, and about those that were not."""

import copy
import json
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from discovery.systems import integrate, noisy, terms_of
from smnn.datasets.dynamics import HARE_LYNX
from smnn.discovery import (
    Discovery,
    DiscoveryWarning,
    EquationVerdict,
    ModelFileError,
    ModelMisfitWarning,
    Verdict,
    VerdictWarning,
)
from smnn.discovery._verdict.rivals import Comparison
from smnn.discovery._verdict.verdict import _Facts, _overall

T = np.arange(0, 20, 0.1)
PREY = integrate(
    lambda t, u: [1.1 * u[0] - 0.4 * u[0] * u[1], -0.4 * u[1] + 0.1 * u[0] * u[1]], [10, 5], T
)


def quiet(X: Any, **options: Any) -> Discovery:
    """A fit without the warning."""
    given = {"t": T[: len(X)], "feature_names": ["a", "b", "c"][: X.shape[1]]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VerdictWarning)
        return Discovery(**options).fit(X, **given)


@pytest.fixture(scope="module")
def prey() -> Discovery:
    with warnings.catch_warnings():
        warnings.simplefilter("error", VerdictWarning)
        return Discovery().fit(noisy(PREY, 0.02), t=T, feature_names=["a", "b"])


class TestLevels:
    @pytest.mark.parametrize("noise", [0.0, 0.05])
    def test_thirty_rows_establish_lotka_volterra(self, noise: float) -> None:
        t = np.linspace(0, 19.9, 30)
        X = integrate(
            lambda t, u: [1.1 * u[0] - 0.4 * u[0] * u[1], -0.4 * u[1] + 0.1 * u[0] * u[1]],
            [10, 5], t,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error", VerdictWarning)
            found = Discovery().fit(noisy(X, noise), t=t)
        assert found.verdict_.level == "established"
        assert all(e.level == "established" for e in found.verdict_.equations.values())

    def test_measured_hares_and_lynxes(self) -> None:
        (pelts,) = HARE_LYNX.series
        found = Discovery().fit(pelts.x, t=pelts.t, feature_names=["hare", "lynx"])
        assert terms_of(found) == [{"hare", "hare lynx"}, {"lynx", "hare lynx"}]
        assert found.verdict_.level == "established"

    def test_white_noise(self) -> None:
        X = np.random.default_rng(0).standard_normal((200, 2))
        with pytest.warns(VerdictWarning, match="nothing found: no candidate term") as caught:
            found = Discovery(ensemble=0).fit(X, feature_names=["a", "b"])
        assert len([w for w in caught if issubclass(w.category, DiscoveryWarning)]) == 1
        assert found.verdict_.level == "nothing found"
        assert found.verdict_.equations["a"].evidence is None
        assert "a': nothing found" in found.summary()
        assert found.warnings_ == [str(found.verdict_)]

    @pytest.mark.parametrize("seed", range(4))
    def test_smooth_unrelated_curves(self, seed: int) -> None:
        """A few correlation lengths of smooth curves satisfy many equations."""
        noise = np.random.default_rng(seed).standard_normal((240, 2))
        X = gaussian_filter1d(noise, 10, axis=0)[100:140]
        found = quiet(X / X.std(0))
        assert found.verdict_.doubtful
        assert all(e.level != "established" for e in found.verdict_.equations.values())

    def test_functions_of_time_alone_need_several_experiments(self) -> None:
        t = np.linspace(0, 20, 200)
        offsets = (0.0, 1.5, -2.0)
        series = [noisy(np.sin(t)[:, None] + c, 0.01, k) for k, c in enumerate(offsets)]
        repeated = [noisy(np.sin(t)[:, None], 0.01, k) for k in range(3)]
        for X, level in (
            (series, "established"),
            (repeated, "tentative"),
            (series[0], "tentative"),
        ):
            verdict = Discovery("poly:1,sin(t),cos(t)", ensemble=5).fit(X, t=t).verdict_
            assert verdict.level == level
            assert ("time alone" in verdict.reason) == (level == "tentative")
        forced = integrate(lambda t, u: [np.cos(1.7 * t) - 0.5 * u[0]], [2.0], t)
        model = Discovery("poly:1,cos(1.7*t)", ensemble=5).fit(noisy(forced, 0.01), t=t)
        assert model.verdict_.level == "established"

    def test_missing_terms_are_named(self) -> None:
        """A pendulum without sines in the library."""
        X = integrate(lambda t, u: [u[1], -4 * np.sin(u[0]) - 0.2 * u[1]], [2.5, 0], T)
        found = quiet(noisy(X, 0.01), library="poly:2")
        assert found.verdict_.level == "not supported"
        worst = found.verdict_.equations["b"]
        assert "sin(a)" in worst.reason
        assert worst.rival is not None
        assert worst.rival > 10
        assert found.verdict_.reason == f"b': {worst.reason}"

    @pytest.mark.parametrize("kind", ["noise", "walk"])
    def test_an_unrelated_column_does_not_affect_the_others(self, kind: str) -> None:
        other = np.random.default_rng(1).standard_normal(len(T))
        other = np.cumsum(other) if kind == "walk" else other
        found = quiet(np.column_stack([noisy(PREY, 0.02), other]))
        levels = [e.level for e in found.verdict_.equations.values()]
        assert levels[:2] == ["established", "established"]
        assert levels[2] != "established"
        assert terms_of(found)[:2] == [{"a", "a b"}, {"b", "a b"}]

    def test_other_methods(self) -> None:
        assert quiet(PREY, method="regression").verdict_.level == "established"
        options = {"cycles": 1, "steps": 1, "batch": 4, "width": 8, "window": 10}
        assert quiet(PREY, method="neural", neural=options).verdict_.doubtful


class TestRule:
    FACTS = _Facts(
        terms=2, values=200, evidence=30.0, chosen=1.0, ratio=50.0,
        against=Comparison(-4.0, -3.0, ["sin(a)"], 1.0, []), correlation=0.0, error=0.02,
        deviation=0.02, unexplained=1e-6, jagged=0.1, curve=False,
    )  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "level", "reason"),
        [
            ({}, "established", "better than a plain curve"),
            ({"terms": 0}, "nothing found", "no candidate term explains how it changes."),
            ({"terms": 0, "values": 5}, "nothing found", "changes, and 5 values are few"),
            ({"evidence": -7.0}, "not supported", "plain curve describes the data better"),
            ({"evidence": 0.5}, "not determined", "plain curve describes the data about as well"),
            ({"evidence": 4.0}, "tentative", "plain curve"),
            ({"evidence": np.nan}, "not determined", "the model is not finite"),
            ({"chosen": 0.5}, "tentative", r"one was selected in 50 % of resamples"),
            ({"chosen": 0.04}, "not determined", r"one was selected in 4 % of resamples"),
            ({"ratio": 2.0}, "tentative", "do not determine its coefficients"),
            ({"outside": 2.0}, "tentative", r"outside the library such as sin\(a\)"),
            ({"inside": 2.0}, "tentative", "other terms of the library"),
            ({"outside": 12.0}, "not supported", r"outside the library such as sin\(a\)"),
            # few values: the evidence of rivals is that of the effective number
            ({"outside": 3.9, "values": 21, "correlation": 0.64}, "established", ""),
            ({"outside": 3.9, "values": 21}, "tentative", "outside the library"),
            ({"outside": 2.0, "values": 99, "correlation": 0.39}, "tentative", "outside"),
            ({"correlation": 0.5}, "tentative", "errors are correlated in time"),
            ({"correlation": 0.5, "error": 1e-4}, "established", ""),
            ({"drift": 20.0}, "tentative", "coefficients differ between the halves"),
            # numerical errors: correlated, but not explained by other terms
            ({"outside": 50.0, "drift": 20.0, "deviation": 1e-6, "error": 1e-6}, "established", ""),
            ({"outside": 70.0, "deviation": 1e-6, "error": 1e-6}, "tentative", "outside"),
            ({"outside": 70.0, "deviation": 1e-8, "error": 1e-8}, "established", ""),
            ({"inside": np.nan, "outside": np.nan}, "tentative", "could not be tried"),
        ],
    )
    def test_levels(self, changes: dict[str, Any], level: str, reason: str) -> None:
        own = {k: changes.pop(k) for k in ("inside", "outside", "drift") if k in changes}
        facts = replace(self.FACTS, **changes, against=replace(self.FACTS.against, **own))
        verdict = facts.verdict()
        assert verdict.level == level
        assert re.search(reason, verdict.reason)

    def test_the_lowest_level_counts(self) -> None:
        good, poor = EquationVerdict("established", "good."), EquationVerdict("tentative", "?")
        each = {"a": good, "b": poor}
        assert str(_overall(each, ["a''", "b''"])) == "tentative: b'': ?"
        nothing = EquationVerdict("nothing found", "none.", values=50)
        assert _overall({"a": nothing, **each}, ["a'", "b'"]).level == "tentative"
        assert _overall({"a": good, "b": nothing}, ["a'", "b'"]).level == "established"
        assert _overall({"a": nothing}, ["a'"]).reason.endswith("how the data change.")


class TestRivals:
    def test_other_terms_of_similar_evidence(self) -> None:
        """Saturated predation, which 21 rows hardly distinguish from a product."""
        (pelts,) = HARE_LYNX.series
        found = Discovery().fit(pelts.x, t=pelts.t, feature_names=["hare", "lynx"])
        names = {rival.variable for rival in found.candidates_}
        assert names == {"hare", "lynx"}
        for rival in found.candidates_:
            assert rival.equation.startswith(f"{rival.variable}' = ")
            assert -6 < rival.evidence < 4
        assert any(rival.diverges.startswith("within the data") for rival in found.candidates_)

    def test_exact_data_have_none_of_other_values(self) -> None:
        found = quiet(PREY)
        assert found.verdict_.level == "established"
        assert found.candidates_ == []


class TestStorage:
    def test_copies_and_files(self, prey: Discovery, tmp_path: Path) -> None:
        path = prey.save(tmp_path / "model.json")
        for again in (pickle.loads(pickle.dumps(prey)), copy.deepcopy(prey), Discovery.load(path)):
            assert again.verdict_ == prey.verdict_
            assert again.candidates_ == prey.candidates_
            assert again.summary() == prey.summary()
        plain = json.loads(json.dumps(prey.verdict_.to_dict()))
        assert Verdict.from_dict(plain) == prey.verdict_

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"level": "certain"}, "level 'certain'; expected one of established"),
            ({"reason": 3}, "a reason that is not a text"),
            ({"equations": []}, "the verdict is incomplete"),
            ({"equations": {"z": {}}}, "the verdict is incomplete"),
        ],
    )
    def test_damaged_files(
        self, prey: Discovery, tmp_path: Path, change: dict[str, Any], message: str
    ) -> None:
        path = prey.save(tmp_path / "model.json")
        record = json.loads(path.read_text("utf-8"))
        record["verdict"] |= change
        path.write_text(json.dumps(record), "utf-8")
        with pytest.raises(ModelFileError, match=message):
            Discovery.load(path)

    def test_files_of_earlier_versions_have_no_verdict(
        self, prey: Discovery, tmp_path: Path
    ) -> None:
        path = prey.save(tmp_path / "model.json")
        record = json.loads(path.read_text("utf-8"))
        del record["verdict"], record["candidates"]
        path.write_text(json.dumps(record), "utf-8")
        again = Discovery.load(path)
        assert again.verdict_.doubtful
        assert "without a verdict" in again.verdict_.reason


def test_summary_begins_with_the_verdict(
    prey: Discovery, capsys: pytest.CaptureFixture[str]
) -> None:
    prey.print()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Verdict: established: the data support the equations")
    assert lines[1:] == prey.equations()


def test_there_is_one_warning_class() -> None:
    assert ModelMisfitWarning is VerdictWarning
