"""KdV data: comparison of the generator with closed forms and invariants, files, symmetries."""

import functools
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smnn.datasets import kdv
from smnn.datasets.kdv import Frames, KdVFileError, read_file, write_easy
from smnn.errors import OutputError

LENGTH = 60.0
CROSS_CHECK = Path(__file__).parent / "kdv_crosscheck.npz"
"""Frames of eight trajectories that the published generator made (Radau, rtol = atol = 1e-9)."""


def soliton(x: np.ndarray, t: float, kappa: float, at: float = 30.0) -> np.ndarray:
    """The solution 12 k^2 sech^2(k (x - 4 k^2 t)), wound around the circle."""
    distance = (x - at - 4 * kappa**2 * t + LENGTH / 2) % LENGTH - LENGTH / 2
    return 12 * kappa**2 / np.cosh(kappa * distance) ** 2


@pytest.mark.parametrize("form", ["advective", "conservative"])
def test_a_soliton_moves_at_its_speed(form: str) -> None:
    x = np.arange(256) * LENGTH / 256
    start = torch.from_numpy(np.stack([soliton(x, 0, 0.5), soliton(x, 0, 0.4)]))
    length, dt = torch.full((2,), LENGTH).double(), torch.full((2,), 0.2).double()
    u = kdv.evolve(start, length, dt, frames=41, form=form, substeps=16)
    for found, kappa in zip(u[:, -1].numpy(), (0.5, 0.4)):
        want = soliton(x, 8.0, kappa)
        # The tails of a soliton on a circle of this length are 3e-7 (kappa 0.4: 1e-5) high.
        assert np.linalg.norm(found - want) / np.linalg.norm(want) < 5e-5


def test_steps_converge_with_fourth_order() -> None:
    x = np.arange(128) * LENGTH / 128
    start = torch.from_numpy(soliton(x, 0, 0.5))[None]
    length, dt = torch.tensor([LENGTH]).double(), torch.tensor([0.4]).double()

    def end(substeps: int) -> torch.Tensor:
        return kdv.evolve(start, length, dt, frames=6, substeps=substeps)[0, -1]

    exact = end(64)
    ratio = (end(2) - exact).norm() / (end(4) - exact).norm()
    assert 3.3 < math.log2(ratio) < 5.5


def test_equals_the_published_generator() -> None:
    with np.load(CROSS_CHECK) as file:
        waves = kdv.Waves(*(file[k] for k in ("L", "T", "A", "phi", "l")))
        want, kept, t = file["u"], file["frames"], file["t"]
    found = kdv.simulate(waves)
    wrong = np.sqrt(((found.u[:, kept] - want) ** 2).sum((1, 2)) / (want**2).sum((1, 2)))
    assert wrong.max() < 1e-6
    np.testing.assert_allclose(found.t[:, kept], t, atol=1e-12)


def test_a_trajectory_depends_on_its_number_alone() -> None:
    five, some = kdv.draw("valid", range(5), seed=3), kdv.draw("valid", [4, 1], seed=3)
    for a, b in zip(five, some):
        np.testing.assert_array_equal(a[[4, 1]], b)
    for other in (kdv.draw("test", [1], seed=3), kdv.draw("valid", [1], seed=4)):
        assert not np.array_equal(other.amplitude, some.amplitude[1:])
    assert set(np.unique(kdv.draw("train", range(50)).number)) == {1, 2}


def test_draws_have_the_published_ranges() -> None:
    waves = kdv.draw("train", range(300))
    for values, low, high in (
        (waves.length, 115.2, 140.8), (waves.duration, 45, 55), (waves.amplitude, -0.5, 0.5),
        (waves.phase, 0, 2 * math.pi),
    ):  # fmt: skip
        width = high - low
        assert low <= values.min() < low + 0.03 * width
        assert high - 0.03 * width < values.max() <= high


@pytest.fixture(scope="module")
def data() -> kdv.Trajectories:
    return kdv.easy("train", 3, form="conservative")


def test_mean_and_energy_are_kept(data: kdv.Trajectories) -> None:
    np.testing.assert_allclose(data.u.mean(2), 0, atol=1e-13)
    energy = (data.u**2).mean(2)
    np.testing.assert_allclose(energy, energy[:, :1] * np.ones(140), rtol=1e-4)


def test_energy_loss_is_an_error() -> None:
    waves = kdv.draw("train", [0])
    with pytest.raises(ArithmeticError, match=r"1 of 1 trajectories did not conserve.*use more"):
        kdv.simulate(waves._replace(amplitude=4 * waves.amplitude), substeps=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "wrong"}, r"form: got 'wrong'; expected one of 'advective', 'conservative'"),
        ({"u": torch.zeros(1, 5).double()}, r"u: got shape \(1, 5\).*X even"),
        ({"u": torch.zeros(1, 4)}, r"torch.float32; expected \(B, X\) of float64"),
        ({"skip": 3}, r"got 3, 3, 32; expected 0 <= skip < frames"),
    ],
)
def test_wrong_arguments_are_named(change: dict, message: str) -> None:
    good = {"u": torch.zeros(1, 4).double(), "length": torch.ones(1).double(),
            "dt": torch.ones(1).double(), "frames": 3}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        kdv.evolve(**{**good, **change})
    with pytest.raises(ValueError, match=r"split: got 'all'; expected one of 'train'"):
        kdv.draw("all", [0])  # type: ignore[arg-type]


# ------------------------------------------------------------------ symmetries


@functools.cache
def solutions() -> Frames:
    """Nine frames of three solutions, close enough in time to be differentiated."""
    waves = kdv.draw("train", range(3))
    dx, dt = torch.from_numpy(waves.length / 256), torch.full((3,), 0.05).double()
    start = waves.values(np.arange(256) * dx.numpy()[:, None])
    length = torch.from_numpy(waves.length)
    u = kdv.evolve(
        torch.from_numpy(start), length, dt, frames=109, skip=100, form="conservative", substeps=4
    )
    return Frames(u, dx, dt)


def residual(f: Frames) -> float:
    """Residual of the equation at the middle frame, relative to the time derivative."""
    u, dx, dt = f
    weights = u.new_tensor([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
    rate = torch.einsum("t,btx->bx", weights, u) / dt[:, None]
    length, v = dx * u.shape[2], u[:, 4]
    space = v * kdv.derivative(v, length, 1) + kdv.derivative(v, length, 3)
    return float((rate + space).norm() / rate.norm())


EACH = st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(
    lambda x: torch.tensor(x, dtype=torch.float64)
)


@settings(max_examples=20, deadline=None)
@given(EACH, EACH, EACH)
def test_images_of_solutions_are_solutions(a, b, c) -> None:
    f = solutions()
    before = residual(f)
    assert before < 1e-6
    for image in (kdv.shift(f, a), kdv.boost(f, b), kdv.rescale(f, 0.2 * c)):
        assert residual(image) < 1e-5


def test_a_wrong_image_is_no_solution() -> None:
    f = solutions()
    assert residual(f._replace(u=1.1 * f.u)) > 1e-2
    assert residual(f._replace(u=f.u.flip(2))) > 1e-1


@settings(max_examples=20, deadline=None)
@given(EACH, EACH)
def test_maps_form_groups(a, b) -> None:
    torch.manual_seed(0)
    u = torch.randn(3, 4, 16).double()
    v = torch.fft.rfft(u)
    v[..., -1] = 0  # the last mode has no phase, so that it cannot be moved by a part of a step
    f = Frames(torch.fft.irfft(v), torch.rand(3).double() + 0.5, torch.rand(3).double() + 0.5)
    for move in (kdv.shift, kdv.boost, kdv.rescale):
        twice, once = move(move(f, a), b), move(f, a + b)
        back = move(move(f, a), -a)
        for x, y, z, start in zip(twice, once, back, f):
            torch.testing.assert_close(x, y)
            torch.testing.assert_close(z, start)


def test_draws_stay_within_their_bounds_and_can_be_switched_off() -> None:
    f = Frames(torch.zeros(500, 2, 8), torch.ones(500), torch.ones(500))
    torch.manual_seed(0)
    out = kdv.Symmetries(shift=1.0, boost=0.4, scale=0.1)(f)
    speed = -out.u[:, 0, 0] * out.dx**2  # undo the scaling of the height
    assert 0.38 < speed.abs().max() <= 0.4
    assert 0.045 < out.dx.log().abs().max() <= 0.05
    torch.testing.assert_close(out.dt, out.dx**3)
    same = kdv.Symmetries(shift=0, boost=0, scale=0)(f)
    assert all(a is b for a, b in zip(same, f))


# ------------------------------------------------------------------ files


def test_files_have_the_published_layout(tmp_path: Path) -> None:
    path = write_easy(tmp_path / "KdV_test_easy.h5", "test", 2, seed=5)
    with h5py.File(path) as file:
        assert {k: (v.shape, v.dtype) for k, v in file["test"].items()} == {
            "pde_140-256": ((2, 140, 256), "f8"), "x": ((2, 256), "f8"), "t": ((2, 140), "f8"),
            "dx": ((2,), "f8"), "dt": ((2,), "f8"),
        }  # fmt: skip
        assert "done" not in file["test"].attrs
    found, want = read_file(path), kdv.easy("test", 2, seed=5)
    for name in ("u", "x", "t", "dx", "dt"):
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
    assert [p.name for p in tmp_path.iterdir()] == ["KdV_test_easy.h5"]


def write(path: Path, **changes) -> Path:
    content = {
        "pde_3-4": np.ones((2, 3, 4)), "x": np.zeros((2, 4)), "t": np.zeros((2, 3)),
        "dx": np.ones(2), "dt": np.ones(2), **changes,
    }  # fmt: skip
    with h5py.File(path, "w") as file:
        for key, value in content.items():
            if value is not None:
                file[f"test/{key}"] = value
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dx": None}, r"the group 'test' holds dt, pde_3-4, t, x; expected one pde_FRAMES-POINTS"),
        ({"x": np.zeros(4)}, r"test/x has shape \(4,\); expected \(2, 4\)"),
        ({"pde_3-4": np.full((2, 3, 4), np.nan)}, r"trajectories 0, 1 are not finite"),
        ({"pde_3-4": np.zeros((2, 3, 4))}, r"zero everywhere: their solver failed"),
        ({"pde_3-4": np.ones((2, 3))}, r"frames of shape \(2, 3\); expected \(N, T, X\)"),
    ],
)
def test_wrong_files_are_explained(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(KdVFileError, match=message):
        read_file(write(tmp_path / "a.h5", **changes))


def test_files_by_others_are_read_and_missing_ones_are_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5")
    assert read_file(path, "test").u.shape == (2, 3, 4)
    with pytest.raises(KdVFileError, match="there is no group 'train'; there are test"):
        read_file(path, "train")
    with pytest.raises(KdVFileError, match="there is no file"):
        read_file(tmp_path / "b.h5")
    (tmp_path / "c.h5").write_text("no")
    with pytest.raises(KdVFileError, match="not a readable HDF5 file"):
        read_file(tmp_path / "c.h5")
    with h5py.File(tmp_path / "d.h5", "w"):
        pass
    with pytest.raises(KdVFileError, match="got the groups none; expected one of 'train'"):
        read_file(tmp_path / "d.h5")
    with pytest.raises(OutputError, match="cannot write"):
        write_easy(tmp_path / "no" / "a.h5", "test", 1)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["advective", "conservative"])
def test_gpu_and_cpu_agree(form: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    waves = kdv.draw("train", range(4))
    for _ in range(2):  # the second time with plans that are there already
        found = kdv.simulate(waves, form=form, device="cuda", substeps=16)
    want = kdv.simulate(waves, form=form, substeps=16)
    np.testing.assert_allclose(found.u, want.u, atol=1e-9)
