"""The SST experiment: networks, forecasts, scores, probes, and the command."""

import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from typer.testing import CliRunner

from smnn.datasets._sst_tools import neighbours, standard
from smnn.datasets.sst import Grid, monthly, write_grid
from smnn.experiments import _sst_docs as docs
from smnn.experiments import _sst_gvae as gvae
from smnn.experiments import _sst_probes as probes
from smnn.experiments import _sst_references as simple
from smnn.experiments import _sst_view as view
from smnn.experiments import sst
from smnn.experiments._sst_identifier import (
    DENSE,
    SMNN,
    SPARSE,
    LatentSplit,
    MechanisticIdentifier,
    Window,
)
from smnn.experiments._sst_modes import fit_modes, logarithm
from smnn.experiments._sst_scores import Judge
from smnn.experiments._sst_train import GVAE, NETWORKS, Pairs, Size, SSTTask, predict, train

TINY = Size(hidden=16, depth=1, head_depth=1, shared=2, specific=2)


def small_grid(times: int = 200, seed: int = 0) -> Grid:
    """Seasons, a warming and noise on a small globe with a continent."""
    rng = np.random.default_rng(seed)
    lat, lon = np.linspace(-80, 80, 9), np.arange(0, 360, 30.0)
    time = (np.datetime64("1990-01") + np.arange(times)).astype("datetime64[ns]")
    phase = 2 * np.pi * np.arange(times)[:, None, None] / 12
    values = 28 * np.cos(np.deg2rad(lat))[None, :, None] + 0.002 * np.arange(times)[:, None, None]
    values = values + 0.05 * lat[None, :, None] * np.cos(phase)
    noise = rng.normal(size=(times, len(lat), len(lon)))
    for t in range(1, times):
        noise[t] = 0.8 * noise[t - 1] + 0.3 * noise[t]
    values = np.rint(100 * (values + 0.5 * noise)).astype(np.float32) * np.float32(0.01)
    values[:, 3:6, 2:4] = np.nan
    return Grid(values, time, lat, lon, np.isfinite(values).all(0), source="made for a test")


class TestSplit:
    def test_the_shared_part_is_averaged_and_no_other(self) -> None:
        z = torch.randn(5, 2, 7)
        out = LatentSplit(3, 4).average(z)
        torch.testing.assert_close(out[:, 0, :3], z[..., :3].mean(1))
        torch.testing.assert_close(out[:, 1, :3], z[..., :3].mean(1))
        assert torch.equal(out[..., 3:], z[..., 3:])

    def test_every_shared_feature_is_aligned(self) -> None:
        split = LatentSplit(3, 4)
        z = torch.zeros(1, 2, 7)
        for k in range(7):
            apart = z.clone()
            apart[0, 0, k] = 2.0
            # Both are one from their mean, in one of three features.
            assert split.misalignment(apart).item() == pytest.approx(1 / 3 if k < 3 else 0.0)

    def test_nothing_shared(self) -> None:
        assert LatentSplit(0, 4).misalignment(torch.randn(2, 2, 4)).item() == 0

    def test_sizes(self) -> None:
        with pytest.raises(ValueError, match="no negative part"):
            LatentSplit(-1, 4)


class TestIdentifier:
    @pytest.mark.parametrize("peek", [False, True])
    @pytest.mark.parametrize("invariant", [False, True])
    def test_the_ode_is_what_is_solved(self, peek: bool, invariant: bool) -> None:
        window = Window(24, 6, peek=peek)
        model = MechanisticIdentifier(
            window, hidden=8, depth=1, head_depth=1, invariant=invariant, order=4
        ).double()
        history = torch.randn(3, 24, dtype=torch.float64)
        start = torch.zeros(3, 6, dtype=torch.float64) + history.mean(-1, keepdim=True)
        found = model(history, start)
        assert found.target.shape == (3, 24)
        ode = found.ode
        assert ode.c.shape[1] == (1 if invariant else window.times)
        assert torch.equal(ode.c[..., 2], torch.ones_like(ode.c[..., 2]))
        assert bool((ode.c > 0).all())
        assert ode.d.shape == (3, window.times, 1)
        assert float(ode.s) == pytest.approx(2 * math.pi / 12)

    def test_time_invariant_against_an_integrator(self) -> None:
        """Constant coefficients and seasonal forcing: scipy from the same initial state."""
        from scipy.integrate import solve_ivp

        window = Window(240, 2, period=120)
        torch.manual_seed(1)
        model = MechanisticIdentifier(
            window, keep=12, hidden=8, depth=1, head_depth=1, invariant=True, order=4
        ).double()
        history = 0.1 * torch.randn(1, 240, dtype=torch.float64)
        ode = model.ode(model.encode(history), torch.zeros(1, 2, dtype=torch.float64))
        y = model.layer(ode, n_steps=window.times)[0, :, 0]
        c0, c1, _ = ode.c[0, 0, 0, 0].tolist()
        a = model.forcing.amplitudes(model.encode(history))[0].tolist()

        def rhs(t: float, x: np.ndarray) -> list[float]:
            d = a[0] + sum(
                a[2 * j - 1] * math.cos(j * t) + a[2 * j] * math.sin(j * t) for j in (1, 2, 3)
            )
            return [x[1], d - c1 * x[1] - c0 * x[0]]

        t = 2 * math.pi / 120 * np.arange(window.times)
        exact = solve_ivp(rhs, (0, t[-1]), y[0, :2].tolist(), t_eval=t, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(y[:, 0].detach(), exact.y[0], atol=2e-3 * np.ptp(exact.y[0]))

    def test_pairs_share(self) -> None:
        model = MechanisticIdentifier(
            Window(12, 4), LatentSplit(4, 0), hidden=8, depth=1, head_depth=1
        )
        history, start = torch.randn(5, 2, 12), torch.randn(5, 2, 4)
        c = model(history, start, pairs=True).ode.c.view(5, 2, -1)
        torch.testing.assert_close(c[:, 0], c[:, 1])
        c = model(history, start).ode.c.view(5, 2, -1)
        assert not torch.allclose(c[:, 0], c[:, 1])

    @pytest.mark.parametrize("solver", [DENSE, SPARSE])
    def test_solvers_of_the_original(self, solver: str) -> None:
        made = []
        for name in (SMNN, solver):
            torch.manual_seed(0)
            made.append(
                MechanisticIdentifier(
                    Window(12, 4, peek=True), hidden=8, depth=1, head_depth=1, solver=name
                ).double()
            )
        history, start = torch.randn(3, 12).double(), torch.randn(3, 4).double()
        a, b = (m(history, start) for m in made)
        torch.testing.assert_close(a.ode.d, b.ode.d)
        assert (a.target - b.target).abs().max() < 0.5  # other rows, the same equation

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected one of S-MNN"):
            MechanisticIdentifier(Window(12, 4), solver="euler")
        with pytest.raises(ValueError, match="expected 2, as it was published"):
            MechanisticIdentifier(Window(12, 4), solver=DENSE, order=3)
        with pytest.raises(ValueError, match="given: got 13 for chunks of 12"):
            Window(12, 13)


class TestAdaGVAE:
    def test_divergences_are_those_of_torch(self) -> None:
        a, b = (gvae.Posterior(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(2))
        p, q = (torch.distributions.Normal(x.mean, (x.log_variance / 2).exp()) for x in (a, b))
        kl = torch.distributions.kl_divergence
        torch.testing.assert_close(a.to(b), kl(p, q))
        standard_normal = torch.distributions.Normal(torch.zeros(4, 3), torch.ones(4, 3))
        torch.testing.assert_close(a.to_standard(), kl(p, standard_normal))

    def test_shared_features_are_found_for_each_pair(self) -> None:
        mean = torch.tensor([[[0.0, 5.0, 0.1], [0.0, -5.0, 0.2]], [[3.0, 0.0, 0.0], [-3.0, 0, 0]]])
        pair = gvae.Posterior(mean, torch.zeros_like(mean))
        shared, common = gvae.share(pair)
        assert common[:, 0].tolist() == [[True, False, True], [False, True, True]]
        assert shared.mean[0, :, 2].tolist() == pytest.approx([0.15, 0.15])
        assert shared.mean[0, :, 1].tolist() == [5.0, -5.0]

    def test_variances_are_averaged_too(self) -> None:
        mean = torch.tensor([[[0.0, 9.0], [0.0, -9.0]]])
        log = torch.tensor([[[math.log(1.0), 0.0], [math.log(3.0), 0.0]]])
        shared, _ = gvae.share(gvae.Posterior(mean, log))
        assert shared.log_variance[0, :, 0].exp().tolist() == pytest.approx([2.0, 2.0])

    def test_the_noise_is_the_error(self) -> None:
        """The evidence is best where the variance of the noise is the mean square error."""
        torch.manual_seed(0)
        model = gvae.AdaGVAE(Window(12, 4), 3, hidden=8, depth=1)
        history, start, target = (torch.randn(64, 2, n) for n in (12, 4, 12))
        with torch.no_grad():
            model.log_noise.fill_(0.0)
        losses = []
        mse = None
        for shift in (-0.5, 0.0, 0.5):
            torch.manual_seed(1)
            found = model.losses(history, start, target)
            mse = found["mse"] if mse is None else mse
            with torch.no_grad():
                model.log_noise.fill_(math.log(float(mse)) + shift)
            torch.manual_seed(1)
            losses.append(model.losses(history, start, target)["loss"].item())
        assert losses[1] == min(losses)


class TestTraining:
    def test_samples(self) -> None:
        grid = small_grid()
        x = grid.series
        data = Pairs(x, neighbours(grid.ocean, 2), Window(24, 6))
        assert len(data) == x.shape[1] * (200 - 48 + 1)
        history, start, target = data[3 * data.starts + 5]
        np.testing.assert_allclose(history[0], x[5:29, 3], rtol=1e-6)
        np.testing.assert_allclose(target[0], x[29:53, 3], rtol=1e-6)
        assert torch.equal(start[0], history[0, -6:])
        cells = grid.cells
        other = [i for i in range(x.shape[1]) if np.allclose(history[1], x[5:29, i], rtol=1e-6)]
        assert len(other) == 1
        assert other[0] != 3
        assert cells[other[0], 0] == cells[3, 0]  # the same latitude

    def test_peeking_samples_are_one_chunk(self) -> None:
        grid = small_grid()
        data = Pairs(grid.series, neighbours(grid.ocean, 2), Window(24, 6, peek=True))
        history, start, target = data.batch(torch.tensor([0, 100]))
        assert torch.equal(history, target)
        assert torch.equal(start, target[..., :6])

    def test_too_short(self) -> None:
        grid = small_grid(40)
        with pytest.raises(ValueError, match="expected at least 48"):
            Pairs(grid.series, neighbours(grid.ocean, 2), Window(24, 6))

    @pytest.mark.parametrize("kind", NETWORKS)
    def test_each_network_learns(self, kind: str) -> None:
        grid = small_grid()
        x = standard(grid.series, grid.time, 200).apply(grid.series)
        data = Pairs(x, neighbours(grid.ocean, 2), Window(24, 6))
        task, log = train(kind, data, TINY, steps=60, batch=64, seed=0, device="cpu")
        curve = [row["mse"] for row in log["history"]]
        assert np.mean(curve[-10:]) < 0.9 * np.mean(curve[:5])  # most of the rest is noise
        again, _ = train(kind, data, TINY, steps=60, batch=64, seed=0, device="cpu")
        for a, b in zip(task.parameters(), again.parameters()):
            assert torch.equal(a, b)  # a seed decides everything
        assert type(task)(**task.config()).config() == task.config()

    def test_only_a_peeking_network_sees_the_target(self) -> None:
        history, target = np.random.default_rng(0).normal(size=(2, 24, 5))
        for peek in (False, True):
            task = SSTTask(GVAE, asdict(Window(24, 6, peek=peek)), asdict(TINY))
            a, b = predict(task, history, target), predict(task, history, target + 1)
            assert np.array_equal(a, b) != peek
            late = target.copy()
            late[6:] += 1  # what is not given
            assert np.array_equal(a, predict(task, history, late))

    def test_unknown(self) -> None:
        with pytest.raises(ValueError, match="expected one of identifier"):
            SSTTask("lstm", {}, {})


class TestModes:
    def test_a_known_system_is_continued(self) -> None:
        """A damped rotation in three cells: its matrix, and the future by its exponential."""
        L = np.array([[-0.01, 0.3, 0.0], [-0.3, -0.01, 0.0], [0.0, 0.0, -0.02]])
        x = np.stack([expm(L * t) @ [1.0, 0.0, 2.0] for t in range(120)])
        found = fit_modes(x, count=3, ridge=0.0)
        future = np.stack([expm(L * t) @ [1.0, 0.0, 2.0] for t in range(120, 140)])
        np.testing.assert_allclose(found.forecast(20), future, atol=1e-4)
        assert found.explained == pytest.approx(1.0)
        modes = sorted(found.oscillations())
        assert modes[0] == pytest.approx((2 * np.pi / 0.3, 100.0), rel=1e-4)
        assert modes[1][1] == pytest.approx(50.0, rel=1e-4)

    def test_shrinkage_only_damps(self) -> None:
        x = np.random.default_rng(0).normal(size=(200, 6)).cumsum(0)
        sizes = [np.abs(fit_modes(x, 4, ridge).amplitudes(12)).max() for ridge in (0.0, 0.5)]
        assert sizes[1] < sizes[0]

    def test_the_solver_gives_the_exponential(self) -> None:
        rng = np.random.default_rng(3)
        found = fit_modes(rng.normal(size=(80, 30)).cumsum(0), count=5)
        exact = np.stack([expm(found.matrix * t) @ found.last for t in range(1, 13)])
        np.testing.assert_allclose(found.amplitudes(12), exact, atol=1e-3 * abs(exact).max())

    def test_logarithm(self) -> None:
        M = expm(np.array([[-0.1, 0.4], [-0.4, -0.2]]))
        np.testing.assert_allclose(expm(logarithm(M)), M, atol=1e-12)
        grows = logarithm(np.diag([1.5, -0.3]))
        assert (np.linalg.eigvals(grows).real < 0).all()

    def test_too_short(self) -> None:
        with pytest.raises(ValueError, match="expected at least 4"):
            fit_modes(np.zeros((3, 5)))


class TestReferences:
    def test_nothing_after_the_history_is_read(self) -> None:
        grid = small_grid()
        spoiled = grid.series.copy()
        spoiled[152:] = np.nan
        for make in (simple.references, simple.coupled):
            clean, other = make(grid.series, grid.time, 152, 48), make(spoiled, grid.time, 152, 48)
            for name in clean:
                np.testing.assert_array_equal(clean[name], other[name])

    def test_a_line_with_seasons_is_continued_exactly(self) -> None:
        time = (np.datetime64("1990-01") + np.arange(120)).astype("datetime64[ns]")
        waves = simple.seasonal_waves(time, 3)
        rng = np.random.default_rng(0)
        y = waves @ rng.normal(size=(7, 4)) + 0.5 * simple._decades(time)[:, None]
        found = simple.references(y, time, 96, 24)
        np.testing.assert_allclose(found[simple.TREND], y[96:], atol=1e-9)
        np.testing.assert_allclose(found[simple.DAMPED], y[96:], atol=1e-9)
        np.testing.assert_allclose(simple.coupled(y, time, 96, 24)["coupled"], y[96:], atol=1e-6)
        np.testing.assert_array_equal(found["last year"], np.tile(y[84:96], (2, 1)))
        np.testing.assert_array_equal(found["previous chunk"], y[72:96])


class TestScores:
    @pytest.fixture
    def judge(self) -> Judge:
        rng = np.random.default_rng(0)
        truth, usual = rng.normal(size=(2, 24, 10))
        return Judge(truth, usual, 2.0, np.linspace(0.1, 1, 10))

    def test_a_perfect_forecast(self, judge: Judge) -> None:
        found = judge.score(judge.truth)
        assert found["relative_mse"] == 0
        assert found["of_climatology"] == 0
        assert found["anomaly_correlation"] == pytest.approx(1)
        assert judge.skill_map(judge.truth) == pytest.approx(1)

    def test_climatology(self, judge: Judge) -> None:
        found = judge.score(judge.climatology)
        assert found["of_climatology"] == pytest.approx(1)
        assert found["anomaly_correlation"] == 0
        assert judge.skill_map(judge.climatology) == pytest.approx(0)

    def test_a_constant_error(self, judge: Judge) -> None:
        found = judge.score(judge.truth + 3)
        assert found["relative_mse"] == pytest.approx(9 / 4)
        assert found["rmse"] == pytest.approx(3)
        assert found["rmse_by_lead"] == pytest.approx([3] * 24)

    def test_given_steps_are_left_out(self, judge: Judge) -> None:
        late = judge.truth.copy()
        late[10:] += 1
        assert judge.score(late)["relative_mse"] == pytest.approx(14 / 24 / 4)
        assert judge.score(late, skip=10)["relative_mse"] == pytest.approx(1 / 4)

    def test_refusals(self, judge: Judge) -> None:
        with pytest.raises(ValueError, match="as the truth"):
            judge.score(judge.truth[1:])
        with pytest.raises(ValueError, match="not finite"):
            judge.score(judge.truth * np.nan)


class TestProbes:
    def test_zones(self) -> None:
        assert probes.zones(np.array([-80.0, -30, 0, 20, 66, 70])).tolist() == [2, 1, 0, 0, 1, 2]

    def test_a_confounded_effect_is_found(self) -> None:
        """Treatment and outcome both depend on x: the difference of means is wrong, AIPW right."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(4000, 2))
        treated = rng.random(4000) < 1 / (1 + np.exp(-x[:, 0]))
        y = 2.0 * treated + 3 * x[:, 0] + rng.normal(size=4000)
        found = probes.effect(x, treated, y, np.arange(4000) // 4)
        assert abs(found.naive - 2) > 1
        assert found.effect == pytest.approx(2, abs=4 * found.error)
        assert found.error < 0.1
        assert found.believable

    def test_groups_without_overlap_are_told(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1000, 1))
        found = probes.effect(x, x[:, 0] > 0, x[:, 0], np.arange(1000))
        assert not found.believable
        assert found.overlap < 0.3
        assert sum(found.record()["propensity_histogram"]["control"]) == found.counts[0]

    def test_one_group(self) -> None:
        with pytest.raises(ValueError, match="one group only"):
            probes.effect(np.zeros((4, 1)), np.ones(4, bool), np.zeros(4), np.arange(4))

    def test_shuffled_labels_are_chance(self) -> None:
        rng = np.random.default_rng(1)
        lat, lon = rng.uniform(-80, 80, 3000), rng.uniform(0, 360, 3000)
        found = probes.zone_probe(np.abs(lat)[:, None], lat, lon, rng.integers(0, 3, 3000))
        assert found["held_out_both"] > 0.9
        assert abs(found["shuffled_labels"] - found["chance"]) < 0.1


@pytest.fixture(scope="module")
def result() -> sst.Result:
    """A small experiment, once."""
    config = sst.Config(
        horizon=24, given=6, holdouts=2, seeds=(0, 1), steps=3, forecaster=False, device="cpu"
    )
    return sst.run(config, small_grid())


class TestExperiment:
    def test_record(self, result: sst.Result) -> None:
        record = json.loads(json.dumps(result.record(), allow_nan=False))
        assert len(record["holdouts"]) == 2
        assert record["holdouts"][0]["history_ends"] == "2004-08"
        assert record["holdouts"][1]["target_ends"] == "2004-08"
        assert len(record["networks"]) == len(sst.RUNS) * 2
        assert {e["protocol"] for e in record["networks"]} == {sst.HISTORY, sst.PEEK}
        assert record["probes"]["effects"]["last chunk against first"]["believable"]

    def test_views(self, result: sst.Result) -> None:
        main, peeking, holdouts = view.tables(result)
        assert len(peeking.rows) == 4
        assert {row.group for row in main.rows} == {"simple", "smnn", "network"}
        images = view.pictures(result)
        assert set(images) == {"sst", "sst-skill", "sst-leads", "sst-parameters", "sst-overlap"}
        assert all(png.startswith(b"\x89PNG") for png in images.values())
        page = view.report(result, images, "smnn reproduce sst")
        assert page.count("<img ") == 5
        assert "history only" in page

    def test_parameters(self, result: sst.Result) -> None:
        p = result.parameters
        assert p is not None
        N = int(result.grid.ocean.sum())
        assert p.values.shape == (7, N, 6)  # 176 months of history hold seven chunks
        c0, c1 = p.values[-1, :, 0], p.values[-1, :, 1]
        # The characteristic roots, by another way.
        roots = np.array([np.roots([1, b, a]) for a, b in zip(c0, c1)])
        slow = -1 / roots.real.max(1) * 12 / (2 * np.pi)
        np.testing.assert_allclose(p.damping, slow, rtol=1e-6)
        turning = np.abs(roots[:, 0].imag) > 1e-9
        np.testing.assert_allclose(
            p.period[turning], 12 / np.abs(roots[turning, 0].imag), rtol=1e-6
        )

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected at least 288"):
            sst.run(sst.Config(holdouts=3), small_grid())
        grid = small_grid()
        weeks = grid.time[0] + 7 * np.arange(200) * np.timedelta64(1, "D")
        weekly = replace(grid, time=weeks)
        with pytest.raises(ValueError, match="7 to 7 days apart; expected one value for each"):
            sst.run(sst.Config(), weekly)
        with pytest.raises(ValueError, match="nothing to forecast"):
            sst.run(sst.Config(), replace(grid, ocean=np.zeros_like(grid.ocean)))
        with pytest.raises(ValueError, match="'small' or 'full'"):
            sst.Config(scale="large")
        with pytest.raises(ValueError, match="0 seeds"):
            sst.Config(seeds=())


def test_a_region_is_not_probed() -> None:
    """A sea without polar cells: all but the probes."""
    grid = small_grid(120)
    part = slice(2, 7)
    region = replace(grid, values=grid.values[:, part, :4], lat=grid.lat[part], lon=grid.lon[:4],
                     ocean=grid.ocean[part, :4])  # fmt: skip
    config = sst.Config(
        horizon=24, given=6, holdouts=1, seeds=(0,), steps=1, forecaster=False, device="cpu"
    )
    found = sst.run(config, region)
    assert found.probes == {}
    assert found.no_probes is not None
    assert "no polar cells" in found.no_probes
    images = view.pictures(found)
    assert "sst-overlap" not in images
    assert "no polar cells" in view.report(found, images, "")


def test_coupled_forecast_beats_every_reference_on_the_packaged_grid() -> None:
    """The last 48 months from the history only, and three hold-outs before."""
    grid = monthly()
    series, horizon = grid.series, 48
    for k in range(4):
        until = len(series) - (k + 1) * horizon
        truth = series[until : until + horizon]
        found = simple.references(series, grid.time, until, horizon)
        ours = simple.coupled(series, grid.time, until, horizon)[simple.COUPLED]
        errors = {name: np.square(x - truth).mean() for name, x in found.items()}
        assert np.square(ours - truth).mean() < min(errors.values())
        if k == 0:
            variance = series[:until].var()
            assert errors[simple.CLIMATOLOGY] / variance == pytest.approx(0.00312, abs=1e-5)
            assert errors[simple.DAMPED] / variance == pytest.approx(0.00240, abs=1e-5)
            first = np.square(ours - truth)[:12].mean()
            usual = np.square(found[simple.CLIMATOLOGY] - truth)[:12].mean()
            fading = np.square(found[simple.DAMPED] - truth)[:12].mean()
            assert first / usual < 0.72 < 0.77 < fading / usual


class TestCommand:
    def app(self) -> object:
        import typer

        from smnn.cli.reproduce.sst import sst as command

        app = typer.Typer()
        app.command()(command)
        return app

    def test_files(self, tmp_path: Path) -> None:
        write_grid(small_grid(260), tmp_path / "grid.nc")
        out = tmp_path / "out"
        found = CliRunner().invoke(
            self.app(),  # type: ignore[arg-type]
            ["--quick", "--steps", "2", "--data", str(tmp_path / "grid.nc"), "--out", str(out),
             "--device", "cpu"],
        )  # fmt: skip
        assert found.exit_code == 0, found.output
        record = json.loads((out / "sst.json").read_text())
        assert record["experiment"] == "sst"
        assert "--quick --seed 0 --steps 2" in record["command"]
        assert {p.name for p in out.iterdir()} == {
            "sst.json", "sst.png", "sst-skill.png", "sst-leads.png", "sst-parameters.png",
            "sst-overlap.png", "report.html",
        }  # fmt: skip
        assert "history only" in found.output

    def test_wrong_file(self, tmp_path: Path) -> None:
        (tmp_path / "grid.nc").write_text("no grid")
        found = CliRunner().invoke(
            self.app(),  # type: ignore[arg-type]
            ["--data", str(tmp_path / "grid.nc"), "--out", str(tmp_path / "out")],
        )
        assert found.exit_code == 2
        assert "not a NetCDF file" in found.output


class TestPage:
    root = Path(__file__).resolve().parents[2]

    def records(self) -> list[dict[str, object]]:
        folder = self.root / "benchmarks" / "results"
        names = ("sst_epyc.json", "scaling_h200.json")
        return [json.loads((folder / name).read_text()) for name in names]

    def test_tables_are_those_of_the_records(self) -> None:
        page = (self.root / "docs" / "sst.md").read_text()
        assert page == docs.fill(page, docs.sections(*self.records()))

    def test_the_record_says_what_was_to_be_shown(self) -> None:
        record, _ = self.records()
        scores = record["holdouts"][0]["scores"]  # type: ignore[index]
        ours = scores[simple.COUPLED]
        for name in simple.REFERENCES:
            assert ours["relative_mse"] < scores[name]["relative_mse"]
        for entry in record["networks"]:  # type: ignore[attr-defined]
            if entry["protocol"] == sst.HISTORY:
                assert ours["relative_mse"] < entry["scores"]["relative_mse"]

    def test_pictures_are_there(self) -> None:
        page = (self.root / "docs" / "sst.md").read_text()
        for name in re.findall(r"\]\((assets/[^)]+)\)", page):
            assert (self.root / "docs" / name).read_bytes().startswith(b"\x89PNG")

    def test_marks_are_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="the page has no <!-- main:start -->"):
            docs.fill("nothing", {"main": "x"})

    def test_the_script_fills_a_page(self, tmp_path: Path) -> None:
        page = tmp_path / "sst.md"
        text = (self.root / "docs" / "sst.md").read_text()
        emptied = re.sub(r"(:start -->).*?(<!-- \w+:end)", r"\1\n\2", text, flags=re.DOTALL)
        assert emptied != text
        page.write_text(emptied)
        folder = self.root / "benchmarks" / "results"
        assert docs.main([str(page), "--sst", str(folder / "sst_epyc.json"),
                          "--scaling", str(folder / "scaling_h200.json")]) == 0  # fmt: skip
        assert page.read_text() == text
