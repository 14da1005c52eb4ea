"""What all experiments share: records, reports, and the command `smnn reproduce`."""

import io
import json
import shlex
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.image import imread
from typer.testing import CliRunner, Result

from smnn.cli import app
from smnn.data import DataFormatError
from smnn.errors import InputError
from smnn.experiments.experiment import EXPERIMENTS, load, read_record, repeated

experiments = pytest.mark.parametrize("name", EXPERIMENTS)
FIGURES = {
    "standalone": {"standalone.png"},
    "sine": {"sine.png", "sine.gif"},
    "kdv": {"kdv.png", "kdv-training.png"},
    "lorenz": {"lorenz.png", "lorenz-loss.png"},
    "sst": {"sst.png", "sst-skill.png", "sst-leads.png"},
    "scaling": {"scaling.png"},
    "discovery-bench": {"discovery-bench.png"},
    "honesty": {"honesty.png"},
    "odebench": {"odebench.png"},
    "pde-bench": {"pde-bench.png"},
    "dysts": {"dysts.png"},
    "noise-maps": {"noise-maps.png"},
    "m4": {"m4.png"},
}
CHANGED: dict[str, dict[str, Any]] = {
    "standalone": {"repeats": 7},
    "sine": {"recordings": 4, "noise": 0.25, "steps": 20, "seed": 3},
    "kdv": {
        "models": ("fno", "modes"), "scale": "full", "train": 16, "seconds": 2.5, "seed": 1,
        "pretrained": True, "data": "waves.h5",
    },
    "lorenz": {
        "steps": 5, "batch": 3, "seed": 2, "device": "cpu", "neural": True, "neural_cycles": 2,
    },
    "sst": {
        "data": "grid.nc", "mask": "mask.nc", "scale": "full", "holdouts": 2, "seeds": 1,
        "steps": 9, "seed": 5, "device": "cpu", "forecaster": False,
    },
    "scaling": {
        "data": "grid.nc", "lengths": (26, 52), "pairs": 4, "hidden": 8, "seconds": 0.5,
        "limit": 2.0, "seed": 1, "device": "cpu",
    },
    "discovery-bench": {
        "systems": ("Lotka-Volterra", "SIR epidemic"), "noise": (0.0, 0.25), "seeds": 2,
        "methods": ("smnn",), "samples": 30, "again": ("smnn",),
    },
    "dysts": {
        "systems": ("SprottA", "SprottB"), "noise": (0.25,), "seeds": 2, "methods": ("smnn",),
        "samples": 30, "again": ("smnn",),
    },
    "noise-maps": {
        "systems": ("Lorenz",), "noise": (0.25,), "lengths": (0.5,), "seeds": 2,
        "methods": ("smnn-regression",), "again": ("smnn",),
    },
    "odebench": {"systems": (3, 5), "noise": (0.1,), "deleted": (0.25,), "seeds": 2},
    "pde-bench": {
        "laws": ("heat", "ks"), "noise": (0.2,), "data": ("missing", "cut"), "methods": ("smnn",),
        "seeds": 3,
    },
    "m4": {"data": "M4", "groups": ("Weekly",), "methods": ("panel", "AutoETS"), "every": 3},
    "honesty": {"unrelated": 2, "known": 1, "missing": 3, "seed": 5},
}  # fmt: skip


def invoke(name: str, out: Path, *options: object) -> Result:
    words = ["reproduce", name, "--out", str(out), *map(str, options)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "80"})


@pytest.fixture
def computed(runs: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the command use the small results; the settings that it asks for are recorded."""
    seen = SimpleNamespace(config=None)

    def prepare(name: str) -> Any:
        result = runs[name]

        def run(config: Any, *_: object, out: object = None) -> Any:
            seen.config = config
            return result

        monkeypatch.setattr(load(name)[0], "run", run)
        return seen

    return prepare


@experiments
def test_records_are_json_and_can_be_read(runs: Any, name: str, tmp_path: Path) -> None:
    record = runs[name].record()
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record, allow_nan=False))
    assert read_record(path, name) == json.loads(path.read_text())
    assert record["machine"]["threads"] >= 1
    assert set(record["settings"]) == {f.name for f in fields(runs[name].config)}
    with pytest.raises(InputError, match=f"its experiment is '{name}'"):
        read_record(path, "other")


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_other_files_are_not_records(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"other\.json holds no results of the experiment 'sine'"):
        read_record(path, "sine")


@experiments
def test_progress_is_reported_as_announced(runs: Any, name: str) -> None:
    assert runs[name] is not None
    expected = load(name)[0].ticks(runs[name].config)
    assert runs.ticks[name] == expected if expected is not None else runs.ticks[name] > 0


@experiments
def test_report_stands_alone(runs: Any, name: str) -> None:
    _, view = load(name)
    figures = view.figures(runs[name])
    assert set(figures) == FIGURES[name]
    for file, content in figures.items():
        if file.endswith(".png"):
            assert imread(io.BytesIO(content)).shape[1] >= 1000
    page = view.report(runs[name], figures, f"smnn reproduce {name} --out <here>")
    assert "--out &lt;here&gt;" in page
    assert page.count("<img ") == len(figures)
    assert "http" not in page
    assert page.count("<script") == 1
    tables = view.tables(runs[name])
    assert page.count("<table>") == len(tables)
    for table in tables:
        assert escape(table.title) in page
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
    for value, meaning in view.summary(runs[name]):
        assert escape(value) in page
        assert escape(meaning) in page


@experiments
def test_command_writes_everything(computed: Any, runs: Any, name: str, tmp_path: Path) -> None:
    computed(name)
    done = invoke(name, tmp_path / "out")
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"{name}.json", "report.html", *FIGURES[name]}
    assert "…" not in done.stdout or name == "sst"  # its table needs 90 columns
    title = load(name)[1].tables(runs[name])[0].title.split(",")[0]
    assert title in " ".join(done.stdout.split())  # narrow tables have titles of several lines
    assert str(tmp_path / "out" / "report.html") in done.stdout.replace("\n", "")
    record = read_record(tmp_path / "out" / f"{name}.json", name)
    assert record.pop("command").startswith(f"smnn reproduce {name} --out {tmp_path / 'out'}")
    printed = json.loads(invoke(name, tmp_path / "out", "--json").stdout)
    assert printed == record == json.loads(json.dumps(runs[name].record()))


@experiments
def test_the_written_command_has_the_same_settings(
    computed: Any, name: str, tmp_path: Path
) -> None:
    seen = computed(name)
    config = load(name)[0].Config(**CHANGED[name])
    words = shlex.split(repeated(name, config, tmp_path))
    assert words[:3] == ["smnn", "reproduce", name]
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    assert repeated(name, seen.config, tmp_path) == shlex.join(words)
    for key in CHANGED[name]:
        assert getattr(seen.config, key) == getattr(config, key)
    assert invoke(name, tmp_path).exit_code == 0
    assert seen.config == load(name)[0].Config()


@pytest.mark.parametrize("name", ["sst", "discovery-bench"])
def test_quick_settings_can_be_changed(computed: Any, name: str, tmp_path: Path) -> None:
    seen = computed(name)
    Config = load(name)[0].Config
    assert invoke(name, tmp_path, "--quick").exit_code == 0
    assert seen.config == Config.quick()
    assert invoke(name, tmp_path, "--quick", "--seeds", "3").exit_code == 0
    assert seen.config == replace(Config.quick(), seeds=3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kdv", ["--models", "mlp"], "models: got mlp; expected some of modes"),
        ("kdv", ["--scale", "huge"], "scale: got 'huge'; expected 'small' or 'full'"),
        ("kdv", ["--pretrained", "--data", "none.h5"], "there is no file"),
        ("sst", ["--scale", "huge"], "scale: got 'huge'; expected 'small' or 'full'"),
        ("scaling", ["--lengths", "52,26"], "increasing numbers from 12 to 1727"),
        ("lorenz", ["--device", "tpu"], "--device: got 'tpu'"),
        ("discovery-bench", ["--systems", "Lorens"], "there is no system 'Lorens'"),
        ("discovery-bench", ["--methods", "sindy"], "methods: got 'sindy'; expected some of smnn"),
        ("discovery-bench", ["--noise", "much"], "--noise: got 'much'; expected numbers"),
        ("discovery-bench", ["--noise", "-0.1"], "expected fractions such as 0.05"),
    ],
)
def test_wrong_use_is_explained(
    name: str, options: list[str], message: str, tmp_path: Path
) -> None:
    done = invoke(name, tmp_path / "out", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["sst", "scaling"])
def test_a_file_that_is_no_grid(name: str, tmp_path: Path) -> None:
    (tmp_path / "grid.nc").write_text("no grid")
    done = invoke(name, tmp_path / "out", "--data", tmp_path / "grid.nc")
    assert done.exit_code == 2
    assert "not a NetCDF file" in done.stderr


def test_unusable_data_are_data_errors(tmp_path: Path) -> None:
    from smnn.datasets.kdv import read_file

    with pytest.raises(DataFormatError, match="there is no file"):
        read_file(tmp_path / "none.h5")
