"""The public surface: its names, their parameters and their defaults. Changing it is a decision."""

import inspect
import subprocess
import sys
from importlib import metadata

import pytest

import smnn

NAMES = {
    "BackendError",
    "Factorization",
    "FittedWeights",
    "Leverage",
    "LinearODE",
    "Posterior",
    "Residuals",
    "ShapeError",
    "SmnnError",
    "SolveError",
    "SolveInfo",
    "__version__",
    "available_backends",
    "factorize",
    "fit_weights",
    "ode_forward",
    "odeint",
    "posterior",
    "residuals",
    "smooth",
    "solve",
    "solve_bvp",
    "solve_ex",
}
WEIGHTS = "w_gov=1.0, w_init=1.0, w_smooth=1.0"
SIGNATURES = {
    "solve": f"(c, d, u, s, *, {WEIGHTS}, order=None, scheme='smnn', n_steps=None,"
    " backend='auto', check=True, keep_factor=True)",
    "solve_ex": f"(c, d, u, s, *, {WEIGHTS}, order=None, scheme='smnn', n_steps=None,"
    " backend='auto', condition=False, keep_factor=True)",
    "factorize": f"(c, s, *, init_shape=(1, 1), {WEIGHTS}, order=None, scheme='smnn',"
    " n_steps=None, backend='auto', check=True)",
    "residuals": f"(y, c, d, u, s, *, {WEIGHTS}, order=None, scheme='smnn')",
    "available_backends": "()",
    "posterior": f"(c, d, u, s, *, {WEIGHTS}, order=None, scheme='smnn', n_steps=None,"
    " backend='auto')",
    "fit_weights": f"(c, d, u, s, *, learn=('w_init', 'w_smooth'), {WEIGHTS}, diffuse_sd=None,"
    " max_iterations=60, **options)",
    "odeint": "(f, y0, t, params=None, *, rtol=1e-06, atol=1e-09, stages=5, max_steps=20000)",
    "solve_bvp": "(f, bc, t, guess, params=None, *, rtol=1e-06, atol=1e-09, stages=5,"
    " max_iterations=40, max_steps=20000)",
    "smooth": "(f, t, data, sigma, params=None, *, guess=None, model_error=0.0, rtol=1e-05,"
    " stages=3, max_steps=20000)",
}


def parameters(function: object) -> str:
    """The signature without annotations."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def test_names() -> None:
    assert set(smnn.__all__) == NAMES
    assert len(smnn.__all__) == len(NAMES)
    assert [name for name in NAMES if not hasattr(smnn, name)] == []


def test_subpackages_are_imported_on_first_access() -> None:
    code = (
        "import smnn, sys; before = 'smnn.nn' in sys.modules;"
        "print(before, smnn.nn.MechanisticLayer.__name__, 'discovery' in dir(smnn))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert run.stdout.split() == ["False", "MechanisticLayer", "True"]
    for name in smnn._SUBPACKAGES:
        assert getattr(smnn, name).__name__ == f"smnn.{name}"
    with pytest.raises(AttributeError, match="module 'smnn' has no attribute 'nothing'"):
        _ = smnn.nothing


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    assert parameters(getattr(smnn, name)) == SIGNATURES[name]


def test_factorization_solves_for_a_right_hand_side() -> None:
    assert parameters(smnn.Factorization.solve).startswith("(self, d, u")


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (smnn.SolveInfo, ("status", "rcond", "weakest", "condition")),
        (smnn.Residuals, ("governing", "initial", "smoothness")),
    ],
)
def test_fields_of_results(record: type, fields: tuple[str, ...]) -> None:
    found = getattr(record, "_fields", None) or tuple(inspect.signature(record).parameters)
    assert tuple(found) == fields


def test_errors_can_be_caught_as_what_they_are() -> None:
    own = (smnn.ShapeError, smnn.SolveError, smnn.BackendError, smnn.errors.DataError)
    assert all(issubclass(error, smnn.SmnnError) for error in own)
    assert issubclass(smnn.ShapeError, ValueError)
    assert issubclass(smnn.SolveError, RuntimeError | ArithmeticError)
    assert issubclass(smnn.BackendError, RuntimeError | ValueError)


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(smnn, name))


def test_version_is_that_of_the_package() -> None:
    assert smnn.__version__ == metadata.version("smnn")


def test_backends_are_named_with_a_reason_where_unusable() -> None:
    backends = smnn.available_backends()
    assert set(backends) == {"reference", "torch", "cpu", "gpu"}
    assert backends["reference"] is None
    assert backends["torch"] is None
    assert all(reason is None or reason for reason in backends.values())


def test_import_stays_light() -> None:
    """`import smnn` must not load what only the console script needs."""
    heavy = (
        *("lightning_fabric", "matplotlib", "pandas", "rich", "safetensors", "scipy", "sklearn"),
        *("torchdiffeq", "typer", "xarray", "smnn.cli", "smnn.discovery", "smnn.experiments"),
        *("smnn.forecasting", "smnn.nn", "smnn.training", "torch._dynamo"),
    )
    code = f"import smnn, sys; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert run.stdout.strip() == "[]"
