"""`smnn discover` on fields."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smnn.cli import app
from smnn.datasets.fields import simulate_law


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["discover", *map(str, words)], env={"COLUMNS": "100"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fields") / "heat.npz"
    data = simulate_law("heat", 1)
    np.savez(path, u=data.noisy(0.05, missing=0.1)[..., 0].T, t=data.t, x=data.x[0])
    return path


def test_law_files_and_summary(field: Path, tmp_path: Path) -> None:
    code, out, err = run(field, "--out", tmp_path / "out")
    assert code == 0, err
    assert "heat.npz: field u; t 101 points from 0 to 4, step 0.04; x 128 points" in err
    assert "periodic; 10.1 % of the values missing." in err or "periodic; 9." in err
    assert "Verdict: established" in out
    assert "u_xx" in out
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "model.json", "equations.txt", "equations.tex",
                     "coefficients.csv"}  # fmt: skip
    code, out, err = run(field, "--out", tmp_path / "other", "--json", "--library", "u,u_xx",
                         "--order", 2, "--forbid", "u_t : u", "--seed", 3)  # fmt: skip
    assert code == 0, err
    record = json.loads(out)
    assert [c["term"] for c in record["coefficients"]] == ["u_xx"]
    assert "--library u,u_xx" in record["command"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--holdout", 0.1), "--holdout has no effect for heat.npz, which holds fields"),
        (("--series", "x"), "--series has no effect"),
        (("--columns", "v"), "there is no field 'v'"),
        (("--time", "s"), "there is no axis 's'"),
        (("--library", "u_xx+"), "u_xx+"),
    ],
)
def test_wrong_use(field: Path, options: tuple[object, ...], message: str, tmp_path: Path) -> None:
    code, out, err = run(field, "--out", tmp_path, *options)
    assert code == 2
    assert not out
    assert message in " ".join(err.split())


def test_options_of_fields_are_refused_for_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("t,x\n" + "\n".join(f"{i},{i * i}" for i in range(20)))
    code, _, err = run(path, "--no-periodic", "--out", tmp_path)
    assert code == 2
    assert "--periodic has no effect for table.csv, which is a table" in " ".join(err.split())
