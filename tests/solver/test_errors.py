"""Errors about arguments: what was passed, what was expected, what to do."""

from typing import Any

import pytest
import torch

import smnn
from helpers import Case, random_problem
from solver.internals import backend_named, choose_backend, gpu, plan


def good(device: str = "cpu", **extra: Any) -> Case:
    """T=6, V=2, Q=2, R=2 with values and slopes at the first two times, two samples."""
    sizes = {"T": 6, "V": 2, "Q": 2, "R": 2, "T_init": 2, "R_init": 1, "batch": (2,)}
    return random_problem(1, device=device, **(sizes | extra))


def zeros(*shape: int, **kw: Any) -> torch.Tensor:
    return torch.zeros(*shape, dtype=kw.pop("dtype", torch.float64), **kw)


SHAPE = smnn.ShapeError
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "c a list": ({"c": [1.0]}, TypeError, r"c: got list; expected a torch\.Tensor.*as_tensor\(c"),
    "d a float": ({"d": 1.0}, TypeError, r"d: got float; expected a torch\.Tensor"),
    "u none": ({"u": None}, TypeError, r"u: got NoneType; expected a torch\.Tensor"),
    "integers": ({"c": torch.ones(2, 6, 2, 2, 3, dtype=torch.int64)}, SHAPE,
        r"c: got dtype torch\.int64; expected torch\.float64 or torch\.float32.*\.double\(\)"),
    "half": ({"s": zeros(2, 5, dtype=torch.float16)}, SHAPE,
        r"s: got dtype torch\.float16; expected torch\.float64 or torch\.float32"),
    "complex": ({"d": zeros(2, 6, 2, dtype=torch.complex128)}, SHAPE,
        r"d: got dtype torch\.complex128"),
    "mixed d": ({"d": zeros(2, 6, 2, dtype=torch.float32)}, SHAPE,
        r"d: got dtype torch\.float32; expected torch\.float64 as c has.*not converted silently"),
    "mixed u": ({"u": zeros(2, 2, 2, 2, dtype=torch.float32)}, SHAPE,
        r"u: got dtype torch\.float32"),
    "mixed s": ({"s": zeros(2, 5, dtype=torch.float32)}, SHAPE, r"s: got dtype torch\.float32"),
    "device": ({"u": zeros(2, 2, 2, 2, device="meta")}, SHAPE,
        r"u: got device meta; expected cpu as c has.*\.to\('cpu'\)"),
    "rank of c": ({"c": zeros(2, 2, 3)}, SHAPE,
        r"c: got shape \(2, 2, 3\); expected \(\*B, T, Q, V, R\+1\)"),
    "rank of d": ({"d": zeros(6, 2)}, SHAPE,
        r"d: got shape \(6, 2\); expected \(\*B, T, Q\) with 1 batch axes.*size 1 to broadcast"),
    "rank of u": ({"u": zeros(2, 2, 2)}, SHAPE,
        r"u: got shape \(2, 2, 2\); expected \(\*B, T_init, V, R_init\+1\)"),
    "rank of s": ({"s": zeros(5)}, SHAPE,
        r"s: got shape \(5,\); expected \(\*B, T-1\) or \(\*B, T-1, V\)"),
    "no variable": ({"c": zeros(2, 6, 2, 0, 3)}, SHAPE,
        r"c: got shape \(2, 6, 2, 0, 3\); expected V >= 1"),
    "no order": ({"c": zeros(2, 6, 2, 2, 0)}, SHAPE,
        r"c: got shape \(2, 6, 2, 2, 0\); expected V >= 1 and R\+1 >= 1"),
    "batch": ({"d": zeros(3, 6, 2)}, SHAPE,
        r"d: got size 3 in batch axis 0 \(shape \(3, 6, 2\)\); expected 2 as c has, or 1"),
    "times of d": ({"d": zeros(2, 5, 2)}, SHAPE,
        r"d: got 5 times; expected 6 times, or 1 that broadcasts"),
    "steps": ({"s": zeros(2, 6)}, SHAPE,
        r"s: got 6 steps; expected 5 steps.*T times have T - 1 steps"),
    "n_steps": ({"n_steps": 7}, SHAPE, r"c: got 6 times; expected 7 times"),
    "n_steps 0": ({"n_steps": 0}, SHAPE, r"n_steps: got 0; expected at least 1"),
    "equations": ({"d": zeros(2, 6, 3)}, SHAPE, r"d: got 3 equations; expected Q = 2 as c has"),
    "variables of u": ({"u": zeros(2, 2, 3, 2)}, SHAPE,
        r"u: got 3 variables; expected V = 2 as c has"),
    "variables of s": ({"s": zeros(2, 5, 3)}, SHAPE,
        r"s: got 3 variables; expected V = 2 as c has, or 1"),
    "order": ({"order": 1}, SHAPE, r"order: got 1; expected at least 2, the highest order c has"),
    "order as text": ({"order": "4"}, TypeError, r"order: got '4'; expected an integer, or None"),
    "order 3.5": ({"order": 3.5}, TypeError, r"order: got 3\.5; expected an integer, or None"),
    "n_steps as text": ({"n_steps": "6"}, TypeError,
        r"n_steps: got '6'; expected an integer, or None"),
    "n_steps 6.5": ({"n_steps": 6.5}, TypeError, r"n_steps: got 6\.5; expected an integer"),
    "w_gov none": ({"w_gov": None}, TypeError,
        r"w_gov: got None; expected a number or a torch\.Tensor"),
    "w_smooth as text": ({"w_smooth": "1"}, TypeError, r"w_smooth: got '1'; expected a number"),
    "w_init a list": ({"w_init": [1.0]}, TypeError, r"w_init: got \[1\.0\]; expected a number"),
    "T_init": ({"u": zeros(2, 7, 2, 2)}, SHAPE, r"u: got T_init = 7; expected at most T = 6"),
    "R_init": ({"u": zeros(2, 2, 2, 4)}, SHAPE,
        r"u: got 4 orders; expected at most R\+1 = 3.*Raise order="),
    "scheme": ({"scheme": "upwind"}, ValueError,
        r"scheme: got 'upwind'; expected one of 'smnn', 'central'"),
    "backend": ({"backend": "cuda"}, smnn.BackendError,
        r"backend: got 'cuda'; expected one of 'auto', .*'reference'"),
    "w_gov": ({"w_gov": zeros(2, 6, 3)}, SHAPE,
        r"w_gov: got shape \(2, 6, 3\); expected \(2, 6, 2\) \(its rows"),
    "w_gov rank": ({"w_gov": zeros(6, 2)}, SHAPE,
        r"w_gov: got shape \(6, 2\); expected \(2, 6, 2\)"),
    "w_init": ({"w_init": zeros(2, 2, 2, 3)}, SHAPE,
        r"w_init: got shape .*; expected \(2, 2, 2, 2\)"),
    "w_smooth": ({"w_smooth": zeros(2, 6, 2, 3)}, SHAPE,
        r"w_smooth: got shape .*; expected \(2, 5, 2, 3\)"),
    "w dtype": ({"w_gov": zeros(1, 1, 1, dtype=torch.float32)}, SHAPE,
        r"w_gov: got dtype torch\.float32 on cpu; expected torch\.float64 on cpu as c has"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_argument(name: str) -> None:
    change, kind, message = WRONG[name]
    case, backend = good(), change.get("backend", "auto")
    new = case.replace(**{k: x for k, x in change.items() if k != "backend"})
    with pytest.raises(kind, match=f"(?s)^{message}"):
        new.solve(backend)
    with pytest.raises(kind, match=f"(?s)^{message}"):
        smnn.solve_ex(*new.args, **new.kw, backend=backend)


def test_central_needs_a_derivative() -> None:
    case = random_problem(1, R=0, Q=2, V=2)
    with pytest.raises(smnn.ShapeError, match="R must be at least 1; got R = 0"):
        case.replace(scheme="central").solve()
    assert case.replace(scheme="central", order=1).solve("reference").shape[-1] == 2


def test_number_of_times_must_be_known() -> None:
    c, d, u, s = random_problem(1, constant="cds").args
    with pytest.raises(smnn.ShapeError, match=r"n_steps: got None.*Pass n_steps=T"):
        smnn.solve(c, d, u, s)
    assert smnn.solve(c, d, u, s, n_steps=9).shape[0] == 9


@pytest.mark.parametrize("order", [60, 200])
def test_order_beyond_float64(order: int, backend: str, device: str) -> None:
    """The factorials of the smoothness rows are too large for float64, or for a C integer."""
    case = random_problem(1, T=4, V=1, Q=1, R=2, order=order, device=device, limit=None)
    with pytest.raises(smnn.SolveError, match="singular"):
        case.solve(backend)


@pytest.mark.parametrize("name", ["auto", "torch", "reference"])
def test_meta_tensors_give_the_shape(name: str) -> None:
    case = good().to("meta")
    y = case.solve(name)
    assert y.is_meta
    assert y.shape == good().solve().shape
    with pytest.raises(smnn.BackendError, match="the tensors are on meta, not on the CPU"):
        case.solve("cpu")


def test_backend_on_the_wrong_device() -> None:
    with pytest.raises(
        smnn.BackendError, match=r"backend 'cpu' cannot be used here.*not on the CPU"
    ):
        choose_backend("cpu", torch.device("cuda"), 6)
    with pytest.raises(smnn.BackendError, match="got 'none'; expected one of 'auto'"):
        backend_named("none")


def test_old_gpus_use_tensor_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the assembler would reject every kernel."""
    monkeypatch.setattr(plan, "_unavailable", lambda name: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla V100")
    monkeypatch.setattr(gpu, "_capability", lambda index: (7, 0) if index == 1 else (7, 5))
    assert choose_backend("auto", torch.device("cuda", 0), 6).name == "gpu"
    assert choose_backend("auto", torch.device("cuda", 1), 6).name == "torch"
    said = r"gpu: its kernels need compute capability 7\.5, Tesla V100 has 7\.0"
    with pytest.raises(smnn.BackendError, match=said):
        choose_backend("gpu", torch.device("cuda", 1), 6)


@pytest.mark.parametrize("name", [k for k, why in smnn.available_backends().items() if why])
def test_unavailable_backend_gives_the_reason(name: str) -> None:
    reason = smnn.available_backends()[name]
    with pytest.raises(
        smnn.BackendError, match=f"(?s)backend '{name}' cannot be used.*{reason[:20]}"
    ):
        good().solve(name)
