"""The networks of the SST experiment: outputs, inputs and training."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from experiments.sst_grids import small_grid
from smnn.datasets.sst import neighbours, standard
from smnn.experiments.solvers import DENSE, SMNN, SPARSE
from smnn.experiments.sst import networks
from smnn.experiments.sst.networks import (
    MechanisticIdentifier,
    Size,
    Window,
)
from smnn.experiments.sst.train import GVAE, NETWORKS, Pairs, SSTTask, predict, train

TINY = Size(hidden=16, depth=1, head_depth=1, shared=2, specific=2)


class TestSharing:
    def test_the_shared_part_is_averaged_and_no_other(self) -> None:
        z = torch.randn(5, 2, 7)
        out = networks.average(z, 3)
        torch.testing.assert_close(out[:, 0, :3], z[..., :3].mean(1))
        torch.testing.assert_close(out[:, 1, :3], z[..., :3].mean(1))
        assert torch.equal(out[..., 3:], z[..., 3:])

    def test_every_shared_feature_is_aligned(self) -> None:
        z = torch.zeros(1, 2, 7)
        for k in range(7):
            apart = z.clone()
            apart[0, 0, k] = 2.0
            # Both are one from their mean, in one of three features.
            expected = 1 / 3 if k < 3 else 0.0
            assert networks.misalignment(apart, 3).item() == pytest.approx(expected)


class TestIdentifier:
    @pytest.mark.parametrize("peek", [False, True])
    def test_the_ode_is_what_is_solved(self, peek: bool) -> None:
        window = Window(24, 6, peek=peek)
        model = MechanisticIdentifier(window, replace(TINY, order=4)).double()
        history = torch.randn(3, 24, dtype=torch.float64)
        start = torch.zeros(3, 6, dtype=torch.float64) + history.mean(-1, keepdim=True)
        found = model(history, start)
        assert found.target.shape == (3, 24)
        ode = found.ode
        assert ode.c.shape[1] == window.times
        assert torch.equal(ode.c[..., 2], torch.ones_like(ode.c[..., 2]))
        assert bool((ode.c > 0).all())
        assert ode.d.shape == (3, window.times, 1)
        assert float(ode.s) == pytest.approx(2 * math.pi / 12)

    def test_pairs_share(self) -> None:
        model = MechanisticIdentifier(Window(12, 4), replace(TINY, shared=4, specific=0))
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
            made.append(MechanisticIdentifier(Window(12, 4, peek=True), TINY, solver=name).double())
        history, start = torch.randn(3, 12).double(), torch.randn(3, 4).double()
        a, b = (m(history, start) for m in made)
        torch.testing.assert_close(a.ode.d, b.ode.d)
        assert (a.target - b.target).abs().max() < 0.5  # other rows, the same equation

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected one of S-MNN"):
            MechanisticIdentifier(Window(12, 4), TINY, solver="euler")
        with pytest.raises(ValueError, match="expected 2, as published"):
            MechanisticIdentifier(Window(12, 4), replace(TINY, order=3), solver=DENSE)
        with pytest.raises(ValueError, match="given: got 13 for chunks of 12"):
            Window(12, 13)


class TestAdaGVAE:
    def test_divergences_are_those_of_torch(self) -> None:
        a, b = (networks.Posterior(torch.randn(4, 3), torch.randn(4, 3)) for _ in range(2))
        p, q = (torch.distributions.Normal(x.mean, (x.log_variance / 2).exp()) for x in (a, b))
        kl = torch.distributions.kl_divergence
        torch.testing.assert_close(a.to(b), kl(p, q))
        standard_normal = torch.distributions.Normal(torch.zeros(4, 3), torch.ones(4, 3))
        torch.testing.assert_close(a.to_standard(), kl(p, standard_normal))

    def test_shared_features_are_found_for_each_pair(self) -> None:
        mean = torch.tensor([[[0.0, 5.0, 0.1], [0.0, -5.0, 0.2]], [[3.0, 0.0, 0.0], [-3.0, 0, 0]]])
        pair = networks.Posterior(mean, torch.zeros_like(mean))
        shared, common = networks.share(pair)
        assert common[:, 0].tolist() == [[True, False, True], [False, True, True]]
        assert shared.mean[0, :, 2].tolist() == pytest.approx([0.15, 0.15])
        assert shared.mean[0, :, 1].tolist() == [5.0, -5.0]

    def test_variances_are_averaged_too(self) -> None:
        mean = torch.tensor([[[0.0, 9.0], [0.0, -9.0]]])
        log = torch.tensor([[[math.log(1.0), 0.0], [math.log(3.0), 0.0]]])
        shared, _ = networks.share(networks.Posterior(mean, log))
        assert shared.log_variance[0, :, 0].exp().tolist() == pytest.approx([2.0, 2.0])

    def test_the_noise_is_the_error(self) -> None:
        """The evidence is best where the variance of the noise is the mean square error."""
        torch.manual_seed(0)
        model = networks.AdaGVAE(Window(12, 4), TINY)
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
