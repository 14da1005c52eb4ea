"""Use of discovered equations: display, export, continuation; scikit-learn's estimator checks."""

import copy
import re
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp
from sklearn.utils.estimator_checks import check_estimator

from discovery.systems import integrate, noisy
from smnn.discovery import DataError, Discovery

matplotlib.use("Agg")
T = 0.1 * np.arange(300)
N = 200


def predators(t: float, z: np.ndarray) -> list[float]:
    return [z[0] * (1 - z[1]), 0.8 * z[1] * (z[0] - 1)]


CLEAN = integrate(predators, [0.5, 0.5], T)
DATA = noisy(CLEAN, 0.08)


@pytest.fixture(scope="module")
def found() -> Discovery:
    frame = pd.DataFrame(DATA[:N], columns=["prey", "predator"]).assign(when=T[:N])
    return Discovery(ensemble=0).fit(frame, time="when")


class TestDisplay:
    def test_summary_and_frame(self, found: Discovery) -> None:
        first, *equations = found.summary().splitlines()
        assert first == "Verdict: " + str(found.verdict_)
        assert equations == found.equations()
        frame = found.to_frame()
        assert list(frame["term"]) == ["prey", "prey predator", "predator", "prey predator"]
        assert (frame["low_90"] < frame["coefficient"]).all()

    def test_plot(self, found: Discovery) -> None:
        axes = found.plot()
        assert [ax.get_title(loc="left") for ax in axes] == ["prey", "predator"]
        assert axes[0].get_xlabel() == "when"
        one = matplotlib.pyplot.figure().subplots()
        assert found.plot(one, names="predator") is one
        np.testing.assert_allclose(one.lines[1].get_ydata(), found.states_[0][:, 1])
        matplotlib.pyplot.close("all")

    def test_notebook(self, found: Discovery) -> None:
        shown = found._repr_mimebundle_()["text/html"]
        assert shown == found._repr_html_()
        assert shown.count("data:image/png") == 1
        assert f"Verdict: {found.verdict_.level}" in shown
        assert "prey" in re.findall(r"<math>.*?</math>", shown)[0]
        assert "sk-" in Discovery()._repr_html_()

    def test_a_loaded_model_has_no_data_to_draw(self, found: Discovery, tmp_path: Path) -> None:
        loaded = Discovery.load(found.save(tmp_path / "model.json"))
        assert "prey' =" in loaded.summary()
        assert "<math>" in loaded._repr_html_()
        with pytest.raises(ValueError, match="nothing to draw"):
            loaded.plot()
        with pytest.raises(DataError, match="no fitted states"):
            loaded.forecast(3)


class TestExport:
    def test_function_for_solve_ivp(self, found: Discovery) -> None:
        rate = found.to_function()
        path = solve_ivp(
            rate, (0, 5), [0.5, 0.5], t_eval=[5.0], rtol=1e-9, atol=1e-9, vectorized=True
        )
        expected = found.simulate([0.5, 0.5], [0.0, 5.0])[1]
        np.testing.assert_allclose(path.y[:, 0], expected, rtol=1e-6)

    def test_inputs_are_a_function_of_time(self) -> None:
        u = np.sin(3 * T)
        X = integrate(lambda t, x: -x + 2 * np.sin(3 * t), [1.0], T)
        driven = Discovery("poly:1", ensemble=0).fit(X, t=T, inputs=u)
        with pytest.raises(DataError, match=r"the model has inputs \(u\); give them as a function"):
            driven.to_function()
        rate = driven.to_function(lambda t: [np.sin(3 * t)])
        np.testing.assert_allclose(rate(0.5, [1.0]), [2 * np.sin(1.5) - 1], atol=0.01)
        ahead = np.sin(3 * (T[-1] + 0.1 * np.arange(1, 21)))
        forecast = driven.forecast(20, inputs=ahead)
        truth = integrate(lambda t, x: -x + 2 * np.sin(3 * t), X[-1], T[-1] + 0.1 * np.arange(21))
        np.testing.assert_allclose(forecast.mean, truth[1:], atol=0.02)
        with pytest.raises(DataError, match="inputs has 3 rows; expected 20"):
            driven.forecast(20, inputs=ahead[:3])

    def test_second_order(self) -> None:
        x = noisy(np.exp(-0.05 * T[:100, None]) * np.cos(2 * T[:100, None]), 0.01)
        found = Discovery("poly:1", order=2, ensemble=0).fit(x, t=0.1)
        z = np.array([0.3, -0.2])
        rate = found.to_function()(0.0, z)
        assert rate[0] == z[1]
        np.testing.assert_allclose(rate[1], -4 * z[0] - 0.1 * z[1], atol=0.1)
        np.testing.assert_array_equal(found.to_torch()(0.0, torch.tensor(z)).detach(), rate)

    @pytest.mark.parametrize("link", [None, "tanh", "softplus"])
    def test_module(self, link: str | None) -> None:
        found = Discovery("poly:1", link=link, ensemble=0).fit(DATA[:60], t=0.1)
        module = found.to_torch()
        assert module.names[0][0] == "x'"
        z = torch.tensor(DATA[:7], requires_grad=True)
        rate = module(0.0, z)
        np.testing.assert_allclose(rate.detach(), found.predict(DATA[:7]), rtol=1e-12)
        assert torch.autograd.gradcheck(lambda c: torch.func.functional_call(
            module, {"coefficients": c}, (0.0, z)), module.coefficients)  # fmt: skip
        other = copy.deepcopy(module)
        other.load_state_dict({"coefficients": 2 * module.coefficients.detach()})
        assert not torch.equal(other(0.0, z), rate)


class TestForecast:
    def test_intervals_cover_the_measurements(self, found: Discovery) -> None:
        forecast = found.forecast(100, level=[80, 95])
        np.testing.assert_allclose(forecast.t, T[N:])
        inside = (DATA[N:] >= forecast.lower) & (DATA[N:] <= forecast.upper)
        assert 0.88 < inside.mean() <= 0.99
        low, high = forecast.interval(0.5)
        assert 0.35 < ((DATA[N:] >= low) & (DATA[N:] <= high)).mean() < 0.65
        frame = forecast.to_frame()
        assert list(frame.columns) == [
            "unique_id", "ds", "smnn", "smnn-lo-80", "smnn-hi-80", "smnn-lo-95", "smnn-hi-95",
        ]  # fmt: skip
        assert (frame["smnn-lo-95"] < frame["smnn-lo-80"]).all()
        assert len(forecast.plot()) == 2
        assert "95 % interval" in forecast.summary()
        matplotlib.pyplot.close("all")

    @pytest.mark.parametrize("missing", [0, 30])
    def test_width_with_known_coefficients(self, missing: int) -> None:
        """The last state has the variance of least squares, the measurement that of the noise."""
        t, ahead = T[:100], 0.1 * np.arange(1, 21)
        x = np.exp(-0.2 * t) + 0.02 * np.random.default_rng(1).normal(size=100)
        x[99 - missing : 99] = np.nan
        found = Discovery("poly:1", ensemble=0, fixed={"x'": "-0.2*x"}).fit(x, t=t)
        assert np.count_nonzero(found.coefficients_) == 1
        seen = np.isfinite(x)
        last = found.noise_[0] ** 2 / np.exp(0.4 * (t[-1] - t[seen])).sum()
        expected = np.sqrt(last * np.exp(-0.4 * ahead) + found.noise_[0] ** 2)
        low, high = found.forecast(20).interval(0.68269)
        np.testing.assert_allclose((high - low).mean() / 2, expected.mean(), rtol=0.03)

    def test_divergence_is_an_infinite_interval(self) -> None:
        t = np.linspace(0, 0.95, 96)
        found = Discovery("poly:2", ensemble=0).fit(noisy(1 / (1 - t), 0.001), t=t)
        forecast = found.forecast(20)
        assert np.isfinite(forecast.upper[0])
        assert np.isinf(forecast.upper[-1])
        assert np.isnan(forecast.mean[-1])

    def test_several_series_and_dates(self) -> None:
        dates = pd.date_range("2024-01-01", periods=80, freq="D")
        decay = np.exp(-0.05 * np.arange(85))
        parts = [
            pd.DataFrame({"run": name, "date": dates, "x": noisy(a * decay[:80], 0.01)})
            for name, a in (("low", 1.0), ("high", 5.0))
        ]
        found = Discovery("poly:1", ensemble=0).fit(pd.concat(parts, ignore_index=True))
        with pytest.raises(DataError, match=r"series: got None; expected .* one of low, high"):
            found.forecast(5)
        forecast = found.forecast(5, series="high")
        assert forecast.t[0] == np.datetime64("2024-03-21")
        np.testing.assert_allclose(
            forecast.mean[:, 0], 5 * np.exp(-0.05 * np.arange(80, 85)), rtol=0.1
        )

    def test_wrong_arguments(self, found: Discovery) -> None:
        with pytest.raises(DataError, match="h: got 0; expected a number of steps"):
            found.forecast(0)
        with pytest.raises(ValueError, match="level: got 120"):
            found.forecast(3, level=120)


def test_unknown_arguments() -> None:
    with pytest.raises(TypeError, match=r"Discovery: .* 'libary'; did you mean 'library'\?"):
        Discovery(libary="poly:2")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Discovery.fit: .* 'tme'; did you mean 'time'\?"):
        Discovery().fit(DATA, tme="t")


NOT_APPLICABLE = {
    "check_fit1d": "an array of one dimension is one variable over time",
    "check_fit2d_predict1d": "an array of one dimension is one state",
    "check_fit2d_1sample": "refused, but the message counts rows instead of samples",
    "check_estimators_empty_data_messages": "refused, but the message names the shape of a series",
    "check_sample_weights_shape": "weights of two dimensions are one weight per value",
    "check_sample_weight_equivalence_on_dense_data": "rows of a series cannot be repeated",
    "check_dtype_object": "refused by DataError, a ValueError; the check expects a TypeError",
}


@pytest.mark.filterwarnings("ignore")
def test_estimator_checks_of_scikit_learn() -> None:
    """All applicable checks pass, and the others fail for the reasons given."""
    estimator = Discovery("poly:1", method="regression", ensemble=0)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {x["check_name"] for x in results if x["status"] == "failed"}
    assert failed == set(NOT_APPLICABLE)
    assert sum(x["status"] == "passed" for x in results) > 30


def test_what_numpy_would_convert_is_refused() -> None:
    with pytest.raises(DataError, match="X has 1 features, but Discovery is expecting 2"):
        Discovery("poly:1", ensemble=0).fit(DATA[:50]).predict(DATA[:, :1])
    with pytest.raises(DataError, match="Complex data not supported"):
        Discovery().fit(DATA * 1j)
