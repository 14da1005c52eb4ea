"""The KdV experiment: models against independent computations, training and scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

from smnn.cli import app
from smnn.datasets import kdv as data_module
from smnn.datasets.kdv import Frames
from smnn.experiments.kdv import baselines, paper, spectral, waves
from smnn.experiments.kdv import run as experiment
from smnn.experiments.kdv import task as tasks
from smnn.experiments.kdv import train as training
from smnn.experiments.solvers import DENSE, SMNN, SPARSE, Solver
from smnn.nn import LinearODE


@pytest.fixture(scope="module")
def easy() -> data_module.Trajectories:
    return data_module.easy("train", 6)


def frames(data: data_module.Trajectories, count: int) -> Frames:
    return tasks.Windows(data, count, start=0).batch(torch.arange(len(data)))


def true_law(model: spectral.ModesModel) -> None:
    """Set the law of a model to the equation of the data."""
    numbers = torch.zeros(spectral.TERMS, dtype=torch.float64)
    numbers[3] = -1
    numbers[spectral.ORDERS + 1 + spectral.PAIRS.index((0, 1))] = -1
    with torch.no_grad():
        model.raw.copy_(torch.linalg.solve(model.mixing, numbers))


# ------------------------------------------------------------------ an ODE for every mode


def test_with_the_true_law_it_is_an_integrator(easy: data_module.Trajectories) -> None:
    model = spectral.ModesModel(sweeps=6).double()
    true_law(model)
    u, dx, dt = frames(easy, 30)
    with torch.no_grad():
        found = tasks.rollout(model, u[:, :10], dx, dt, 20)
    assert tasks.errors(found, u[:, 10:]).by_truth.max() < 1e-7
    assert str(model.law()) == "u_t = -1.00000 u_xxx -1.00000 u u_x"


def test_linear_waves_have_the_right_frequency() -> None:
    """Linear laws have closed forms: u = cos(k x + w t) with u_t = a u_x + b u_xxx + e u_xx."""
    model = spectral.ModesModel(horizon=3, order=4, substeps=8).double()
    numbers = torch.zeros(spectral.TERMS, dtype=torch.float64)
    numbers[1:4] = torch.tensor([0.7, 0.05, -0.3])
    with torch.no_grad():
        model.raw.copy_(numbers)
    dx, dt = torch.tensor([0.4, 0.5]).double(), torch.tensor([0.2, 0.1]).double()
    x = torch.arange(32).double() * dx[:, None]
    k = 2 * torch.pi * 2 / (32 * dx[:, None])
    t = dt[:, None, None] * torch.arange(-3, 4).double()[:, None]
    w = 0.7 * k + 0.3 * k**3
    u = torch.exp(-0.05 * k**2 * t.squeeze(-1))[..., None] * torch.cos(
        (k * x)[:, None] + w[:, None] * t
    )
    found = model(u[:, :4], dx, dt)
    torch.testing.assert_close(found, u[:, 3:], atol=1e-6, rtol=0)


def test_scaling_a_solution_scales_the_answer(easy: data_module.Trajectories) -> None:
    model = spectral.ModesModel(sweeps=4).double()
    true_law(model)
    f = frames(easy, 4)
    e = torch.linspace(-0.2, 0.2, len(easy)).double()
    with torch.no_grad():
        a = model(*data_module.rescale(f, e))
        b = model(*f)
    torch.testing.assert_close(a, b * torch.exp(2 * e)[:, None, None], atol=1e-9, rtol=1e-7)


def test_preconditioning_does_not_change_the_law(easy: data_module.Trajectories) -> None:
    model = spectral.ModesModel().double()
    model.prepare(*frames(easy, 140))
    true_law(model)
    law = model.law()
    assert law.linear[3].item() == pytest.approx(-1)
    # In preconditioned units the law has a norm of about one.
    assert 0.3 < model.raw.norm().item() < 30


def test_the_gradient_reaches_the_law(easy: data_module.Trajectories) -> None:
    model = spectral.ModesModel(sweeps=2).double()
    model.prepare(*frames(easy, 40))
    true_law(model)
    small = Frames(*(x[:1] for x in frames(easy, 4)))
    small = small._replace(u=small.u[..., ::16].contiguous(), dx=16 * small.dx)

    def out(raw: torch.Tensor) -> torch.Tensor:
        with torch.nn.utils.parametrize.cached():
            return torch.func.functional_call(model, {"raw": raw}, tuple(small))[:, 1]

    assert torch.autograd.gradcheck(out, (model.raw.detach().clone().requires_grad_(),), atol=1e-6)


def test_too_short_windows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"frames \* substeps: got 1 \* 3; expected at least"):
        spectral.ModesModel(substeps=3)


def test_the_law_is_learned_from_data(easy: data_module.Trajectories, tmp_path: Path) -> None:
    task, record = training.train("modes", easy, easy, tmp_path, steps=150, progress=False)
    law = task.model.law()
    assert law.linear[3].item() == pytest.approx(-1, abs=0.05)
    assert law.products[0, 1].item() == pytest.approx(-1, abs=0.05)
    scores, _ = training.score(task, data_module.easy("test", 3), frames=20)
    assert scores["nmse"]["20"] < 1e-3
    assert record["steps"] == 150
    assert "u u_x" in record["law"]


@pytest.mark.parametrize("padding", ["zeros", "circular"])
@pytest.mark.parametrize("stride", [1, 2])
def test_layout_of_convolutions_changes_no_value(padding: str, stride: int) -> None:
    torch.manual_seed(0)
    layer = paper.Convolution(3, 5, 7, stride, padding=3, padding_mode=padding).double()
    x = torch.randn(2, 3, 32, dtype=torch.float64, requires_grad=True)
    found = []
    for channels_last in (False, True):
        layer.channels_last = channels_last
        y = layer(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ an ODE for every point


@pytest.mark.parametrize("name", ["operator", "paper", "resnet", "fno", "modes"])
def test_models_start_with_the_last_known_frame(name: str) -> None:
    torch.manual_seed(0)
    options = {
        "operator": {"width": 8, "hidden": 4}, "paper": {"points": 32, "blocks": (8, 16)},
        "resnet": {"width": 8, "blocks": 2}, "fno": {"width": 8, "layers": 2, "modes": 4},
    }.get(name, {})  # fmt: skip
    model = tasks.MODELS[name](**options)
    u, one = torch.randn(2, 10, 32), torch.ones(2)
    out = model(u, 0.5 * one, 0.2 * one)
    assert out.shape == (2, 1 + model.horizon, 32)
    assert out.dtype == torch.float32
    if name != "paper":
        torch.testing.assert_close(out[:, 0], u[:, -1], atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------ a law without given terms


def free_law() -> spectral.OperatorModel:
    """With smooth random weights, as small as those after training."""
    torch.manual_seed(0)
    model = spectral.OperatorModel(width=4, hidden=4, sweeps=8, tolerance=1e-9).double()
    with torch.no_grad():
        for spline in (model.linear, model.encode, model.decode):
            k = spectral.KNOT * torch.arange(-1, len(spline.table) - 1)[:, None].double()
            phase = torch.rand(1, spline.table.shape[1]).double()
            spline.table.copy_(0.3 * torch.exp(-k.abs() / 4) * torch.cos(k + 6 * phase))
    return model


def test_splines_are_free_functions_of_the_wave_number() -> None:
    """Cubic functions are represented exactly, on every grid."""
    spline = spectral.Spline(2, 0.0).double()
    knots = spectral.KNOT * torch.arange(-1, len(spline.table) - 1)[:, None].double()
    with torch.no_grad():
        # B-spline coefficients of k^3 are k^3 - h^2 k, those of k are k.
        spline.table.copy_(
            torch.cat([knots, 0 * knots, knots**3 - spectral.KNOT**2 * knots, 2 * knots], 1)
        )
    k = torch.linspace(0, spectral.REACH - 0.5, 97).double()[None]
    found = spline(k)
    torch.testing.assert_close(found[..., 0].real, k)
    torch.testing.assert_close(found[..., 1], torch.complex(k**3, 2 * k))


def test_the_free_law_is_the_same_everywhere_and_on_every_grid() -> None:
    model = free_law()
    x = torch.linspace(0, 1, 65).double()[:-1]
    u = torch.stack([(2 * torch.pi * (x - 0.01 * t)).sin() for t in range(4)])[None]
    dx, dt = torch.tensor([0.5]).double(), torch.tensor([0.2]).double()
    out = model.eval()(u, dx, dt)
    assert (out[:, 1] - out[:, 0]).norm() > 0.01
    torch.testing.assert_close(model(u.roll(5, 2), dx, dt), out.roll(5, 2))
    torch.testing.assert_close(model(u[..., ::2].contiguous(), 2 * dx, dt), out[..., ::2],
                               rtol=1e-4, atol=1e-5)  # fmt: skip


def test_gradients_of_the_free_law() -> None:
    model = free_law().train()
    u, dx, dt = torch.randn(1, 4, 16).double(), torch.ones(1).double(), torch.ones(1).double() / 9
    names = [name for name, _ in model.named_parameters()]

    def out(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, values)), (u, dx, dt))[:, 1]

    assert torch.autograd.gradcheck(
        out, tuple(p.detach().requires_grad_() for p in model.parameters()), fast_mode=True
    )


def test_a_free_law_is_learned_from_data(easy: data_module.Trajectories, tmp_path: Path) -> None:
    _, record = training.train(
        "operator", easy, easy.take(slice(0, 1)), tmp_path, steps=80, settings={"log_every": 10},
        progress=False,
    )  # fmt: skip
    losses = [row["loss"] for row in record["history"] if "loss" in row]
    assert losses[-1] < 0.5 * losses[0]


# ------------------------------------------------------------------ the paper's network


def test_solvers_of_the_original_mnn_give_nearly_the_same() -> None:
    torch.manual_seed(0)
    B, X = 1, 3
    ode = LinearODE(
        torch.cat([1 + torch.rand(B, X, 10, 1, 1, 1), 0.1 * torch.rand(B, X, 10, 1, 1, 4)], -1),
        torch.rand(B, X, 10, 1), torch.rand(B, X, 1, 1, 4), torch.full((B, X, 1), 0.3),
    ).apply(torch.Tensor.double)  # fmt: skip
    dense, sparse = (Solver(n)(ode)[0] for n in (DENSE, SPARSE))
    torch.testing.assert_close(dense, sparse, atol=1e-5, rtol=1e-5)
    assert dense.shape == Solver(SMNN)(ode)[0].shape == (B, X, 10, 1, 5)
    with pytest.raises(ValueError, match="solver: got 'euler'; expected one of S-MNN, MNN dense"):
        Solver("euler")


def test_the_paper_model_has_the_published_number_of_parameters() -> None:
    # Those that get gradients; the published classes also hold some that never do.
    assert sum(p.numel() for p in paper.PaperModel().parameters()) == 10_434_045


def test_baselines_have_the_published_sizes_but_for_the_history() -> None:
    # Ten frames instead of twenty: ten columns less in the first layer, ten rows in the last.
    resnet = sum(p.numel() for p in baselines.ResNet().parameters())
    assert resnet == 3_164_948 - 10 * 256 - 10 * 257
    fno = baselines.FNO()
    complex_count = sum(p.numel() // (2 if "mixing" in n else 1) for n, p in fno.named_parameters())
    assert complex_count == 10_856_084 - 10 * 256 - 10 * 129


# ------------------------------------------------------------------ task and scores


def test_windows_cover_every_start(easy: data_module.Trajectories) -> None:
    windows = tasks.Windows(easy, 139)
    assert len(windows) == 12
    u, dx, dt = windows.batch(torch.tensor([1, 10]))
    np.testing.assert_array_equal(u, np.stack([easy.u[0, 1:140], easy.u[5, :139]]))
    np.testing.assert_array_equal(dx, easy.dx[[0, 5]])
    np.testing.assert_array_equal(windows[10].u, u[1])
    with pytest.raises(ValueError, match="got 141 frames from frame 0 on; the trajectories have"):
        tasks.Windows(easy, 141)


def test_errors_have_both_normalizations() -> None:
    truth, prediction = torch.ones(1, 2, 4), torch.tensor([2.0, 1.0]).view(1, 2, 1).expand(1, 2, 4)
    found = tasks.errors(prediction, truth)
    assert found.by_prediction.tolist() == [[0.25, 0.0]]
    assert found.by_truth.tolist() == [[1.0, 0.0]]
    summary = training.summary(torch.full((1, 20, 4), torch.inf), torch.ones(1, 20, 4))
    assert summary["nmse"] == {"20": None}


class Counting(nn.Module):
    horizon = 3

    def forward(self, u: torch.Tensor, dx: torch.Tensor, dt: torch.Tensor) -> torch.Tensor:
        return u[:, -1:] + torch.arange(4.0)[:, None]


def test_rollouts_continue_their_own_output() -> None:
    u = torch.arange(10.0)[None, :, None].expand(2, 10, 4)
    out = tasks.rollout(Counting(), u, torch.ones(2), torch.ones(2), 8)
    assert out[1, :, 2].tolist() == [10, 11, 12, 13, 14, 15, 16, 17]


def test_the_loss_is_relative_and_unrolled(easy: data_module.Trajectories) -> None:
    f = frames(easy, 28)
    still = tasks.KdVTask("modes", {"horizon": 9}, passes=2).double()  # u_t = 0
    u = f.u
    want = [
        ((u[:, 9:10] - part).square().sum((1, 2)) / part.square().sum((1, 2))).sqrt().mean()
        for part in (u[:, 10:19], u[:, 19:28])
    ]
    assert still.length == 28
    assert still.losses(f)["loss"].item() == pytest.approx(sum(want).item() / 2)
    change = tasks.KdVTask("modes", {"horizon": 9}, relative_to="change").double()
    assert change.losses(f)["loss"].item() == pytest.approx(1.0)
    assert tasks.KdVTask(**still.config()).config() == still.config()
    for wrong, message in (
        ({"model": "mlp"}, "model: got 'mlp'; expected one of modes, operator"),
        ({"relative_to": "x"}, "relative_to: got 'x'; expected 'energy' or 'change'"),
    ):
        with pytest.raises(ValueError, match=message):
            tasks.KdVTask(**wrong)


def test_infinite_predictions_do_not_abort_training(easy: data_module.Trajectories) -> None:
    task = tasks.KdVTask("fno", {"width": 8, "layers": 1, "modes": 4}).double()
    nn.init.constant_(task.model.first.weight, torch.inf)
    assert task.evaluate(frames(easy, 50)) == {
        "loss": tasks.LOST, "nmse_20": tasks.LOST, "nmse_40": tasks.LOST
    }  # fmt: skip


# ------------------------------------------------------------------ the experiment


def test_pretrained_weights_beat_the_paper_on_new_data(runs: Any) -> None:
    record = runs["kdv"].record()
    scores = record["models"]["modes"]["scores"]
    assert scores["trajectories"] == 3
    assert scores["nmse"]["20"] < 2e-5
    assert scores["nmse"]["40"] < 1e-4
    assert len(scores["curve"]) == 100
    assert record["law"].startswith("u_t = -1.0")


def test_training_is_resumed_and_other_settings_are_refused(tmp_path: Path) -> None:
    def run_command(*words: object) -> Result:
        return CliRunner().invoke(app, ["reproduce", "kdv", *map(str, words)])

    words = ["--out", tmp_path, "--models", "fno", "--seconds", "1", "--train", "8", "--valid", "1",
             "--test", "1"]  # fmt: skip
    first = run_command(*words)
    assert first.exit_code == 0, first.output
    assert "FNO" in first.output
    before = (tmp_path / "fno" / "scores.json").read_text()
    (tmp_path / "kdv.json").unlink()
    assert run_command(*words).exit_code == 0
    assert (tmp_path / "fno" / "scores.json").read_text() == before
    assert (tmp_path / "kdv.json").exists()
    other = run_command(*words, "--seed", "1")
    assert other.exit_code == 2
    assert "holds results of other settings (seed differ)" in other.output


@pytest.mark.parametrize("name", experiment.PRETRAINED)
def test_the_packaged_logs_belong_to_the_weights(name: str) -> None:
    task = experiment.pretrained(name)
    folder = Path(experiment.__file__).parent / "weights" / name
    log = json.loads((folder / "log.json").read_text())
    assert log["task"] == task.config()
    assert log["trajectories"] == 512
    assert log["parameters"] == sum(p.numel() for p in task.parameters())
    if name == "modes":
        assert log["law"] == str(task.model.law())
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5e6


# ------------------------------------------------------------------ waves unlike the training data


def test_new_waves_are_solutions_and_follow_from_the_seed() -> None:
    found = waves.new_waves(3, seed=2)
    assert found.u.shape == (3, 140, 256)
    np.testing.assert_array_equal(found.u, waves.new_waves(3, seed=2).u)
    assert np.abs(found.u[1].mean(-1)).min() > 0.01 > np.abs(found.u[2].mean(-1)).max()
    np.testing.assert_allclose(
        (found.u**2).mean(-1).std(1) / (found.u**2).mean((1, 2)), 0, atol=0.02
    )


def test_fast_waves_are_solved_until_they_converge() -> None:
    """With the three sweeps of its training the model diverges on this wave."""
    task, fast = experiment.pretrained(), data_module.easy("test", 1)
    lifted = Frames(*(torch.from_numpy(x) for x in (fast.u, fast.dx, fast.dt)))
    lifted = data_module.boost(lifted, torch.tensor([-3.5], dtype=torch.float64))
    with torch.no_grad():
        found = tasks.rollout(task.model, lifted.u[:, :10], lifted.dx, lifted.dt, 60)
        assert tasks.errors(found, lifted.u[:, 10:70]).by_truth.max() < 1e-6
        unsettled = tasks.rollout(task.model.train(), lifted.u[:, :10], lifted.dx, lifted.dt, 60)
    assert not tasks.errors(unsettled, lifted.u[:, 10:70]).by_truth.max() < 1e-3


def test_roll_outs_that_diverge_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command names them, reports no mean, and fails."""
    monkeypatch.setattr(spectral, "MAX_SWEEPS", 2)
    file = data_module.write_easy(tmp_path / "waves.h5", "test", 2)
    words = ["reproduce", "kdv", "--pretrained", "--data", file, "--out", tmp_path / "out"]
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == 1
    assert "modes: 2 of 2 roll-outs diverge (trajectory 0 at frame 1, 1 at frame 1)" in found.output
    scores = json.loads((tmp_path / "out" / "kdv.json").read_text())["models"]["modes"]["scores"]
    assert scores["failed"] == {"0": 1, "1": 1}
    assert scores["nmse"]["20"] is None
    assert "roll-outs diverge" in (tmp_path / "out" / "report.html").read_text()
