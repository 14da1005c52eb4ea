"""Beside the published code: the same numbers, and its own programs on ours, unchanged.

Needs checkouts of both repositories, in folders `mech-nn` and `ScalableMNN`:

    SMNN_PEERS=FOLDER pytest tests/compat/test_peers.py

What takes long is shortened from outside: by Lightning's own environment variables, or by smaller
constants in a cell of a notebook.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smnn.compat
from helpers import random_problem, relative
from smnn.baselines import mnn_sparse

PEERS = Path(os.environ.get("SMNN_PEERS", "."))
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif("SMNN_PEERS" not in os.environ, reason="SMNN_PEERS names no checkouts"),
    pytest.mark.filterwarnings("ignore"),
]
OF_MECH_NN = ("solver", "config", "ipdb", "nbody", "extras", "discovery", "pde", "fit")
f64 = torch.float64


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """Leave neither modules nor paths of mech-nn behind."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [m for m in sys.modules if m.split(".")[0] in OF_MECH_NN]:
            del sys.modules[name]


def import_theirs(solver: str = "DENSE_CHOLESKY", iterations: int = 200) -> Any:
    """mech-nn's own layers; to be called within `borrowed`."""
    sys.path.insert(0, str(PEERS / "mech-nn"))
    if importlib.util.find_spec("ipdb") is None:
        sys.modules["ipdb"] = types.ModuleType("ipdb")
    config = importlib.import_module("config").ODEConfig
    kind = importlib.import_module("config").SolverType
    config.linear_solver, config.cg_max_iter = kind[solver], iterations
    return importlib.import_module("solver.ode_layer")


def compare(
    theirs: Any, ours: Any, sizes: dict[str, Any], inputs: list[Tensor | None], tolerance: float
) -> None:
    """Outputs, their shapes and dtypes, and gradients by every input."""
    found = []
    for kind in (theirs, ours):
        leaves = [None if x is None else x.clone().requires_grad_() for x in inputs]
        out = kind(**sizes)(*leaves)
        loss = out[0].square().sum() + (out[1] * out[2]).sum() + 3 * out[3].sum()
        grads = torch.autograd.grad(loss, [x for x in leaves if x is not None])
        found.append((out, grads))
    (out, grads), (our_out, our_grads) = found
    for a, b in zip(our_out, out, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert relative(a, b) < tolerance
    for a, b in zip(our_grads, grads, strict=True):
        assert a.dtype == b.dtype
        assert relative(a, b) < tolerance


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


# ---------------------------------------------------------------- mech-nn


@pytest.mark.parametrize("n_iv", [0, 2])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_independent_equations(order: int, n_iv: int) -> None:
    sizes = {"bs": 2, "order": order, "n_ind_dim": 3, "n_iv": n_iv, "n_step": 12, "n_iv_steps": 2}
    steps = 0.75 + 0.25 * draw(2, 3, 11).tanh()
    iv = draw(2, 3, 2, n_iv, seed=1) if n_iv else None
    inputs = [draw(2, 3, 12, order + 1), draw(2, 3, 12), iv, steps]
    with borrowed():
        theirs = import_theirs().ODEINDLayer
        ours = smnn.compat.ODEINDLayer
        compare(theirs, ours, sizes | {"double_ret": True}, inputs, 1e-9)
        compare(theirs, ours, sizes | {"gamma": 0.05, "alpha": 2.0}, inputs, 1e-6)  # float32


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_systems(order: int, periodic: bool) -> None:
    sizes = {
        "bs": 2, "order": order, "n_ind_dim": 2, "n_dim": 2, "n_equations": 2, "n_iv": 1,
        "n_iv_steps": 3, "n_step": 10, "periodic_boundary": periodic,
    }  # fmt: skip
    ends = 2 * order if periodic else 0
    steps = 0.75 + 0.25 * draw(2, 2, 9, 2).tanh()
    inputs = [draw(2, 2, 2, 10, 2, order + 1), draw(2, 2, 2, 10), draw(2, 2, 6 + ends), steps]
    with borrowed():
        compare(import_theirs().ODESYSLayer, smnn.compat.ODESYSLayer, sizes, inputs, 1e-9)


def test_conjugate_gradients_step_by_step() -> None:
    """The same iterates, as long as rounding errors have not parted them."""
    c, d, u = draw(2, 30, 1, 1, 3), draw(2, 30, 1), draw(2, 1, 1, 2, seed=2)
    s = 0.5 + 0.2 * draw(2, 29, 1, seed=3).tanh()
    with borrowed():
        layer = import_theirs("SPARSE_INDIRECT_BLOCK_CG", 6).ODEINDLayer(
            bs=2, order=2, n_ind_dim=1, n_iv=2, n_step=30, n_iv_steps=1, double_ret=True
        )
        u0, _, _, eps, _ = layer(c, d, u, s)
    found = mnn_sparse(c, d, u, s, max_iter=6, check=False)
    assert not found.converged.any()
    assert relative(found.y[..., 0, 0], u0[:, 0]) < 1e-12
    assert relative(found.eps, eps) < 1e-8


def test_conjugate_gradients_do_not_converge() -> None:
    """Its own notebook, 200 iterations: the same wrong curve, and ours says that it is wrong."""
    c = torch.tensor([1.0, 0.0, 1.0], dtype=f64).repeat(500, 1, 1, 1)
    args = c, c.new_zeros(500, 1), c.new_tensor([[[0.0, 1.0]]]), c.new_full((499,), 0.05)
    with borrowed():
        layer = import_theirs("SPARSE_INDIRECT_BLOCK_CG").ODEINDLayer(
            bs=1, order=2, n_ind_dim=1, n_iv=2, n_step=500, n_iv_steps=1, double_ret=True
        )
        u0, *_ = layer(*args)
    found = mnn_sparse(*args, check=False)
    assert not bool(found.converged)
    assert relative(found.y[:, 0, 0], u0[0, 0]) < 1e-6
    exact = torch.sin(0.05 * torch.arange(500, dtype=f64))
    assert (u0[0, 0] - exact).square().mean() / exact.var() > 0.8


def cells(notebook: Path, namespace: dict[str, Any], smaller: dict[str, str]) -> dict[str, Any]:
    """Run the code of a notebook, with some constants replaced."""
    left = set(smaller)
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = [line for line in cell["source"] if not line.startswith("%")]
        code = "".join(lines)
        for old, new in smaller.items():
            left -= {old} if old in code else set()
            code = code.replace(old, new)
        try:
            program = compile(code, str(notebook), "exec")
        except SyntaxError:  # an f-string of Python 3.12, in a plot
            if sys.version_info >= (3, 12) or "ode_forward" in code:
                raise
            continue
        exec(program, namespace)
    assert not left, f"constants that are not in the notebook: {left}"
    return namespace


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Run a notebook from a folder of its own, without a screen and without ffmpeg."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import animation

    monkeypatch.setattr(animation.Animation, "to_html5_video", lambda self: "")
    if importlib.util.find_spec("IPython") is None:
        display = types.ModuleType("IPython.display")
        display.HTML = str  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
        monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)

    def run(path: Path, **smaller: str) -> dict[str, Any]:
        sys.path.insert(0, str(path.parent))
        sys.modules.pop("strogatz_equations", None)  # the notebook changes it
        np.random.seed(0)
        torch.manual_seed(0)
        try:
            return cells(path, {"__name__": "__main__"}, smaller)
        finally:
            sys.path.remove(str(path.parent))

    yield run
    torch.set_printoptions(profile="default")
    matplotlib.pyplot.close("all")


def test_solver_notebook(notebook: Callable[..., Any]) -> None:
    path = PEERS / "mech-nn" / "1_solver_test.ipynb"
    with borrowed():
        import_theirs()
        theirs = notebook(path)
    with borrowed():
        smnn.compat.install()
        ours = notebook(path)
    assert ours["ode"].__class__ is smnn.compat.ODEINDLayer
    for name in ("u0", "u1", "u2", "eps"):
        assert ours[name].dtype == theirs[name].dtype == torch.float32
        # float32 holds seven digits; the slack is 1e-5 of what it is computed from
        assert relative(ours[name], theirs[name]) < (1e-4 if name == "eps" else 1e-6)
    assert np.abs(ours["u0"].numpy().squeeze() - ours["z"]).max() < 0.03


def test_sine_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps of training, the same curves as with its own solver."""
    pytest.importorskip("pytorch_lightning")
    monkeypatch.chdir(tmp_path)
    for key, value in (("MAX_STEPS", "5"), ("ENABLE_PROGRESS_BAR", "False"), ("LOGGER", "False")):
        monkeypatch.setenv(f"PL_TRAINER_{key}", value)
    monkeypatch.setenv("PL_TRAINER_ENABLE_CHECKPOINTING", "False")
    curves = []
    for prepare in (import_theirs, smnn.compat.install):
        with borrowed():
            prepare()
            np.random.seed(1)
            torch.manual_seed(1)
            script = runpy.run_path(str(PEERS / "mech-nn" / "fit" / "sine.py"), run_name="sine")
            script["train"]()
            curves.append(np.stack(script["method"].func_list))
    assert curves[0].shape == (5, 1, 1, 500)
    assert relative(curves[1], curves[0]) < 1e-4
    assert not np.array_equal(curves[1][0], curves[1][-1])


@pytest.mark.parametrize("script", ["fit/sine.py", "nbody/two_body_multi_sparse_sys.py"])
def test_scripts_from_the_command_line(script: str, tmp_path: Path) -> None:
    """In a copy of the checkout, as its README says, with three steps of training."""
    pytest.importorskip("pytorch_lightning")
    checkout = tmp_path / "mech-nn"
    shutil.copytree(PEERS / "mech-nn", checkout, ignore=shutil.ignore_patterns(".git", "*.ipynb"))
    done = subprocess.run(
        [sys.executable, "-m", "smnn.compat", script],
        cwd=checkout, capture_output=True, text=True, timeout=600,
        env=os.environ | {"PL_TRAINER_MAX_STEPS": "3", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "`Trainer.fit` stopped: `max_steps=3` reached" in done.stdout + done.stderr
    assert "precision solver" not in done.stdout  # what its own layers print


# ---------------------------------------------------------------- ScalableMNN


@pytest.fixture(scope="module")
def published() -> Any:
    path = PEERS / "ScalableMNN" / "smnn.py"
    spec = importlib.util.spec_from_file_location("published_smnn", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("R", [2, 3, 4])
def test_ode_forward(published: Any, R: int, central: bool, first: bool) -> None:
    case = random_problem(R, R=R, T=9, batch=(2, 3), shared="cs", T_init=2, limit=1e3)
    args = case.args
    if first:
        args = [x.movedim(-k, 0) for x, k in zip(args, (4, 2, 3, 1))]
    options = {
        "is_step_dim_first": first, "enable_central_smoothness": central, "weight_equation": 2.0,
        "weight_smooth": 3.0, "weight_init_var": 0.5,
    }  # fmt: skip
    found = []
    for function in (published.ode_forward, smnn.compat.ode_forward):
        leaves = [x.clone().requires_grad_() for x in args]
        y = function(*leaves, **options)
        found.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    assert found[0][0].shape == found[1][0].shape
    for theirs, ours in zip(*found):
        assert relative(ours, theirs) < 1e-9


def beside(
    published: Any, monkeypatch: pytest.MonkeyPatch, run: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same notebook with `from smnn import ode_forward` meaning ours, then theirs."""
    ours = run()
    assert ours["ode_forward"] is smnn.compat.ode_forward
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "smnn", published)
        theirs = run()
    assert theirs["ode_forward"] is published.ode_forward
    return ours, theirs


def test_standalone_notebook(
    published: Any, notebook: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sympy")
    path = PEERS / "ScalableMNN" / "examples" / "standalone" / "standalone.ipynb"
    ours, theirs = beside(published, monkeypatch, lambda: notebook(path))
    assert len(ours["equations"]) == 6
    for a, b in zip(ours["equations"], theirs["equations"]):
        got, expected = (np.array(x["solutions_mnn"][0][0]["y"]) for x in (a, b))
        assert relative(got[:, 0], expected[:, 0]) < 1e-9
        exact = np.array(a["solutions_gt"][0][0]["y"][0])
        assert np.square(got[0, 0] - exact).mean() / exact.var() < 3e-7


def test_sine_notebook(
    published: Any, notebook: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytorch_lightning")
    path = PEERS / "ScalableMNN" / "examples" / "sine" / "sine.ipynb"
    small = {"max_epochs=500": "max_epochs=5"}
    ours, theirs = beside(published, monkeypatch, lambda: notebook(path, **small))
    got, expected = (np.stack(x["func_list"]) for x in (ours, theirs))
    assert got.shape == (5, 1, 1, 500)
    assert relative(got, expected) < 1e-6


def test_lorenz_notebook(
    published: Any, notebook: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PEERS / "ScalableMNN" / "examples" / "lorenz" / "lorenz.ipynb"
    small = {"n_steps = 10000": "n_steps = 600", "n_epochs = 400": "n_epochs = 2",
             "max_iter = 10 ": "max_iter = 2 ", "batch_size = 512": "batch_size = 64"}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = beside(published, monkeypatch, lambda: notebook(path, **small))
    assert ours["loss"].item() == pytest.approx(theirs["loss"].item(), rel=1e-6)
    got, expected = (x["model"].get_xi().detach() for x in (ours, theirs))
    assert got.shape == (1, 10, 3)
    assert relative(got, expected) < 1e-6
