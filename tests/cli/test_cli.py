"""The console script: what it writes, what it prints, how it ends."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import smnn
from smnn.cli import app
from smnn.cli._guard import complain, results_folder
from smnn.cli._reading import as_options
from smnn.experiments.standalone import run as experiment

runner = CliRunner()
STANDALONE = ["reproduce", "standalone", "--repeats", "1"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def fail(*_: object) -> None:
    raise ArithmeticError("first line\nsecond line")


def test_standalone_writes_everything_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "results"
    done = runner.invoke(app, [*STANDALONE, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(os.listdir(out)) == ["report.html", "standalone.json", "standalone.png"]
    record = json.loads((out / "standalone.json").read_text())
    assert record["command"] == f"smnn reproduce standalone --out {out} --repeats 1"
    assert all(all(e["agrees"]) for e in record["paper_setting"] if e["solver"] == "S-MNN")
    assert (out / "standalone.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (out / "standalone.png").stat().st_size > 100_000
    assert "18 of 18" in done.stdout
    assert "4.8e-12 ✓" in done.stdout
    assert str(out / "report.html") in done.stdout.replace("\n", "")


def test_tables_fit_a_terminal_of_eighty_columns(tmp_path: Path) -> None:
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)], env={"COLUMNS": "80"})
    assert "…" not in done.stdout


def test_json_is_all_that_is_printed(tmp_path: Path) -> None:
    done = runner.invoke(app, [*STANDALONE, "--json", "--out", str(tmp_path)])
    assert json.loads(done.stdout)["experiment"] == "standalone"


@pytest.mark.parametrize("below", ["", "deeper"])
def test_out_that_is_a_file(tmp_path: Path, below: str) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    done = runner.invoke(app, [*STANDALONE, "--out", str(taken / below)])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert taken.read_text() == "mine"


def test_out_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(
        **_: object,
    ) -> None:  # root may write anywhere, so a folder cannot be made to refuse
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert ": Permission denied." in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", fail)
    command = [*STANDALONE, "--out", str(tmp_path)]
    quiet = runner.invoke(app, command)
    assert quiet.exit_code == 1
    assert quiet.stderr.endswith("error: ArithmeticError: first line (--debug shows where)\n")
    loud = runner.invoke(app, [*command, "--debug"])
    assert isinstance(loud.exception, ArithmeticError)


def test_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", interrupt)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "Interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_missing_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy", "scipy.integrate"):
        monkeypatch.setitem(sys.modules, module, None)
    done = runner.invoke(app, [*STANDALONE, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "pip install scipy" in done.stderr


def test_wrong_use() -> None:
    assert runner.invoke(app, ["reproduce", "nothing"]).exit_code == 2
    assert runner.invoke(app, [*STANDALONE[:2], "--repeats", "0"]).exit_code == 2


def test_version() -> None:
    done = runner.invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout == f"smnn {smnn.__version__}\n"


def test_info_names_every_backend() -> None:
    done = runner.invoke(app, ["info"])
    assert done.exit_code == 0
    for name, reason in smnn.available_backends().items():
        assert name in done.stdout
        assert reason is None or reason.split()[0] in done.stdout


def test_info_as_json() -> None:
    found = json.loads(runner.invoke(app, ["info", "--json"]).stdout)
    assert {n: b["reason"] for n, b in found["backends"].items()} == smnn.available_backends()
    assert found["machine"]["versions"]["torch"]


def test_console_script_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "smnn.cli", "--version"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == f"smnn {smnn.__version__}\n"


# ---------------------------------------------------------------- the same everywhere


def commands(group: Any = None, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command that does something, by its words."""
    found: dict[str, Any] = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, (*path, name))
        else:
            found[" ".join((*path, name))] = command
    return found


def options(command: Any) -> dict[str, Any]:
    return {o: p for p in command.params for o in p.opts if o.startswith("--")}


def arguments(name: str) -> int:
    return sum(p.param_type_name == "argument" and p.required for p in commands()[name].params)


def test_all_commands_are_there() -> None:
    names = set(commands())
    assert names >= {
        "discover", "solve", "train", "bench", "info", "data list", "data make", "data check",
        "reproduce standalone", "reproduce sine", "reproduce kdv", "reproduce lorenz",
        "reproduce discovery-bench",
    }  # fmt: skip


@pytest.mark.parametrize("name", commands())
def test_options_have_one_name_and_meaning(name: str) -> None:
    found = options(commands()[name])
    assert {"--json", "--debug"} <= set(found)
    assert all(found[o].is_flag for o in ("--json", "--debug"))
    assert ("--out" in found) == (name not in ("info", "data list", "data check"))
    assert not any(found[o].is_flag for o in ("--out", "--seed", "--device") if o in found)
    if "--seed" in found:
        negative = runner.invoke(app, [*name.split(), *["x"] * arguments(name), "--seed", "-1"])
        assert negative.exit_code == 2
        assert "'--seed'" in negative.stderr
    # A person who guesses is told the truth, with the code of wrong use.
    wrong = runner.invoke(app, [*name.split(), "--nonsense"])
    assert wrong.exit_code == 2
    assert "Traceback" not in wrong.stderr
    shown = runner.invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert "--json" in shown.stdout


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    (tmp_path / "a.txt").write_text("y' = y, y(0) = 1, t = 0 .. 1")
    for words in (["solve", str(tmp_path / "a.txt")], ["train", "damping"]):
        done = runner.invoke(app, [*words, "--device", "cuda"])
        assert done.exit_code == 2
        assert "there is no CUDA device here; use cpu" in done.stderr


def test_seed_and_device_of_training(tmp_path: Path) -> None:
    words = ["train", "damping", "--set", "epochs=1", "--set", "tensorboard=false", "--json"]
    words += ["--set", "data.samples=20", "--seed", "5", "--device", "cpu"]
    done = runner.invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["train"]
    assert (settings["seed"], settings["accelerator"]) == (5, "cpu")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("dis", {"discover"}), ("data ", {"list", "make", "check"}), ("solve --or", {"--order"})],
)
def test_completion(typed: str, expected: set[str]) -> None:
    words = ["smnn", *typed.split(" ")]
    env = {"_SMNN_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words),
           "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    done = runner.invoke(app, [], prog_name="smnn", env=env)
    assert done.exit_code == 0
    assert set(done.stdout.split()) == expected


def test_info_says_why() -> None:
    found = json.loads(runner.invoke(app, ["info", "--json"]).stdout)
    for name, state in found["backends"].items():
        assert (state["because"] is None) != state["usable"], name
        assert (state["reason"] is None) == state["usable"], name
    assert found["auto"]["cpu"] == "cpu"
    assert "auto on cpu" in runner.invoke(app, ["info"]).stdout


def test_messages_cannot_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    complain("column '\x1b[2J\x07' [bold]x[/] is\nwrong")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]x[/] is\nwrong" in shown


# ---------------------------------------------------------------- as processes


def start(*words: str, **more: Any) -> subprocess.Popen[str]:
    env = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm-256color"}
    return subprocess.Popen(
        [sys.executable, "-m", "smnn.cli", *words], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=env, preexec_fn=_listen, **more,
    )  # fmt: skip


def _listen() -> None:
    """Jobs in the background inherit a shell's deafness to SIGINT; a person's terminal has none."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def swing(path: Path) -> Path:
    t = 0.05 * np.arange(400)
    rows = np.stack([t, np.cos(t) + 0.01 * np.sin(9 * t), np.sin(t)], 1)
    np.savetxt(path, rows, delimiter=",", header="t,x,y", comments="")
    return path


def test_nothing_but_text_goes_into_a_pipe(tmp_path: Path) -> None:
    data = swing(tmp_path / "swing.csv")
    system = tmp_path / "a.txt"
    system.write_text("y' = -y, y(0) = 1, t = 0 .. 1")
    jobs = [
        start("discover", str(data), "--library", "poly:1", "--out", str(tmp_path / "d")),
        start("solve", str(system), "--out", str(tmp_path / "s")),
    ]
    for job in jobs:
        out, err = job.communicate(timeout=240)
        assert job.returncode == 0, err
        assert not set("\x1b\r\b") & set(out + err)
        assert "Report: " in out


def test_a_pipe_that_is_closed(tmp_path: Path) -> None:
    job = start("data", "list", "--json")
    assert job.stdout is not None
    assert job.stderr is not None
    job.stdout.readline()
    job.stdout.close()
    job.wait(timeout=120)
    assert "Traceback" not in job.stderr.read()


LONG = {
    "discover": ["--ensemble", "20000", "--library", "poly:3"],
    "solve": [],
    "reproduce": ["standalone", "--repeats", "100000"],
    "data": ["make", "kdv", "--samples", "512"],
}


def interrupted(job: subprocess.Popen[str]) -> tuple[str, str]:
    """Send Ctrl-C; a second time if the first was lost in a library that was being loaded."""
    job.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return job.communicate(timeout=30)
    job.send_signal(signal.SIGINT)
    return job.communicate(timeout=90)


def test_ctrl_c_in_a_callback_of_a_c_library() -> None:
    """Exceptions cannot leave such a callback, for example one of the JIT compiler."""
    code = """
import ctypes, os, signal, sys, time
import smnn.cli._app as cli

signal.signal(signal.SIGINT, signal.default_int_handler)

@ctypes.CFUNCTYPE(None)
def callback():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)

def app():
    callback()
    while True:
        time.sleep(0.01)

cli.app = app
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c(tmp_path: Path, name: str) -> None:
    """A real signal in the middle of the work: told in a line, nothing half-written.

    Training, which can be taken up again, has its own test beside the training loop.
    """
    x = torch.ones(1, 1, 1, 2, dtype=torch.float64, requires_grad=True)
    one = x.detach().new_ones
    # Compiled kernels are cached on disk: a callback of the compiler that a signal interrupts
    # prints a traceback of its own.
    smnn.solve(x, one(1, 1), one(1, 1, 1), one(9)).sum().backward()
    if name == "discover":
        smnn.discovery.Discovery(library="poly:1", ensemble=0).fit(np.exp(-np.arange(40) / 10))
    out = tmp_path / "out"
    source = []
    if name == "discover":
        source = [str(swing(tmp_path / "swing.csv"))]
    elif name == "solve":
        system = "\n".join(f"x{i}' = -x{i} + sin(t), x{i}(0) = 1" for i in range(4))
        (tmp_path / "a.txt").write_text(f"{system}\nt = 0 .. 4000 step 0.004")
        source = [str(tmp_path / "a.txt")]
    with start(name, *source, *LONG[name], "--out", str(out)) as job:
        try:
            deadline = time.monotonic() + 120
            while not out.exists():
                assert job.poll() is None, job.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.5)
            assert job.poll() is None, job.communicate()
            stdout, stderr = interrupted(job)
        finally:
            job.kill()  # whatever went wrong, it must not go on working
    # If the signal comes while `exec` runs a text, as SciPy does when it is loaded, Python says
    # in the end that it died of it. A shell shows 130 for both.
    assert job.returncode in (130, -signal.SIGINT), stderr
    assert "Interrupted" in stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    assert os.listdir(out) == []


# ---------------------------------------------------------------- the page about it

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", commands())
def test_the_page_names_every_command(name: str) -> None:
    assert f"smnn {name}" in PAGE


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(b for b in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "swing.txt" in b)
    Path("swing.txt").write_text(example)
    done = runner.invoke(app, ["solve", "swing.txt"], env={"COLUMNS": "120"})
    told = {line.rstrip() for line in PAGE.splitlines()}
    tables = [x.rstrip() for x in done.stdout.splitlines() if re.match(r"   y|.* t = 0|  y''", x)]
    assert len(tables) == 5
    assert set(tables) <= told
    Path("logistic.txt").write_text("y' = 2*y*(1 - y)\ny(0) = 0.1\nt = 0 .. 5")
    refused = runner.invoke(app, ["solve", "logistic.txt"])
    assert " ".join(refused.stderr.split()) in " ".join(PAGE.split())
    runner.invoke(app, ["data", "make", "lotka", "--noise", "0.02", "--seed", "1"])
    checked = runner.invoke(app, ["data", "check", "lotka-volterra.csv"])
    assert checked.stdout in PAGE


def test_one_folder_for_each_command_and_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    inputs = ["x.csv", "x.nc", "x.2023.csv", "x.2024.csv", "a/x.csv", "../x.csv", "../there/x.csv"]
    found = [results_folder(c, Path(x)) for c in ("discover", "forecast") for x in inputs]
    assert found[0] == results_folder("discover", tmp_path / "here" / "x.csv")
    assert str(found[0]) == "smnn-results/discover-x"
    assert len(set(found)) == len(found)
    assert {folder.parent for folder in found} == {Path("smnn-results")}


@pytest.mark.parametrize(("message", "shown"), [
    ("is in two (dayfirst=True) or one (dayfirst=False)", "is in two (--dayfirst) or one (--month"),
    ("columns: there is no 'x'", "--columns: there is no 'x'"),
    ("(na=() keeps it); decimal=',', skip_rows=0", "(--na '' keeps it); --decimal ',', --skip-"),
    ("name it with series=, or the time: 3", "name it with --series, or the time: 3"),
])  # fmt: skip
def test_arguments_are_shown_as_options(message: str, shown: str) -> None:
    assert shown in as_options(message)
