"""Pins, hashes and licences of dependencies."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


licences, lock, install = tool("licences"), tool("lock"), tool("install")


@pytest.mark.parametrize("name", [n for n in licences.pins() if licences.is_installed(n)])
def test_licences_are_allowed(name: str) -> None:
    assert licences.allowed(licences.licence(name)), licences.licence(name)


def test_forbidden_licences_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("GPL-3.0-only", "MIT AND GPL-3.0-only", "unknown", "AGPL-3.0 OR LicenseRef-X", ""):
        assert not licences.allowed(text)
    for text in ("MIT", "GPL-2.0 OR MIT", "MIT AND (BSD-3-Clause OR GPL-3.0-only)"):
        assert licences.allowed(text)
    monkeypatch.setattr(licences, "licence", lambda name: "GPL-3.0-only")
    assert any("numpy: got licence 'GPL-3.0-only'" in problem for problem in licences.problems())


def test_documentation_lists_the_pins() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = text.split(licences.BEGIN)[1].split(licences.END)[0]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    assert {row[0]: row[1] for row in rows} == licences.pins()
    for name, version, stated, _ in (row for row in rows if licences.is_installed(row[0])):
        if metadata.version(name).partition("+")[0] == version:  # others may have other licences
            assert stated == licences.licence(name), name


TRITON_OF = {"2.13.0": "3.7.1"}
"""Version of Triton that the CUDA builds of each torch version require."""


def test_pins_fit_every_build_of_torch() -> None:
    """With another version of Triton, pip cannot install the CUDA builds."""
    pins = licences.pins()
    assert pins["triton"] == TRITON_OF[pins["torch"]]


def test_every_direct_dependency_is_explained() -> None:
    assert set(licences.direct()) <= set(licences.WHY)
    # fugue needs an older pandas than the pinned one, and Zarr stores are optional even in tests.
    assert set(licences.WHY) - set(licences.pins()) == {"fugue", "zarr"}


def test_every_pin_but_torch_is_locked() -> None:
    pins = lock.pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    hashes = lock.locked((ROOT / "requirements-ci.lock").read_text(encoding="utf-8"))
    assert set(hashes) == {pin for name, pin in pins.items() if name not in lock.UNLOCKED}
    assert {"torch"} == lock.UNLOCKED
    assert all(hashes.values())


def test_lock_file_round_trip(tmp_path: Path) -> None:
    hashes = {"b==2": {"1" * 64, "0" * 64}, "a==1.0": {"f" * 64}}
    text = lock.write(hashes, "# head\n")
    assert lock.locked(text) == hashes
    assert text.startswith("# head\na==1.0 \\\n    --hash=sha256:ffff")
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"x")
    (tmp_path / "b-2.tar.gz").write_bytes(b"y")
    (tmp_path / "notes.txt").write_bytes(b"z")
    assert set(lock.files(tmp_path)) == {("a", "1.0"), ("b", "2")}


# ---------------------------------------------------------------- what `make test` installs


class Pip:
    """Records its calls; fails at calls that contain the word `fails`."""

    def __init__(self, fails: str = "", says: str = "") -> None:
        self.fails, self.says = fails, says
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        self.calls.append(tuple(arguments))
        return (1, self.says) if self.fails and self.fails in arguments else (0, "")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("Linux", "x86_64", "glibc", (3, 11)), None),
        (("Linux", "aarch64", "glibc", (3, 12)), None),
        (("Linux", "x86_64", "glibc", (3, 13)), "and this is 3.13"),
        (("Linux", "x86_64", "", (3, 11)), "with glibc, and this is Linux x86_64"),
        (("Darwin", "arm64", "", (3, 11)), "and this is Darwin arm64"),
    ],
)
def test_platforms_of_the_lock_file(
    where: tuple[str, str, str, tuple[int, int]], message: str
) -> None:
    why_not = install.no_hashes(*where)
    assert why_not is None if message is None else message in why_not


def test_installs_by_hash_only(capsys: pytest.CaptureFixture[str]) -> None:
    pip = Pip()
    assert install.install(pip, None) == 0
    assert pip.calls == list(install.LOCKED)
    assert "--require-hashes" in pip.calls[0]
    assert "Installed by hash" in capsys.readouterr().out


def test_wrong_hash_stops_the_installation(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the hashes would not protect anything."""
    pip = Pip("--require-hashes", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM ...")
    assert install.install(pip, None) == 1
    assert pip.calls == list(install.LOCKED[:1])
    assert "make test LOCK=no" in capsys.readouterr().err


@pytest.mark.parametrize("fails", ["--require-hashes", "torch", "check"])
def test_falls_back_to_versions_without_the_files(
    fails: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pip = Pip(fails, "ERROR: No matching distribution found")
    assert install.install(pip, None, strict=True) == 1
    assert not set(pip.calls) & set(install.BY_VERSION)
    assert install.install(pip, None) == 0
    assert pip.calls[-2:] == list(install.BY_VERSION)
    said = capsys.readouterr()
    assert "Not by hash: requirements-ci.lock cannot be used, pip " in said.err
    assert "Installed by version" in said.out


def test_other_platforms_install_by_version(capsys: pytest.CaptureFixture[str]) -> None:
    pip = Pip()
    assert install.install(pip, "for a reason") == 0
    assert pip.calls == list(install.BY_VERSION)
    assert "cannot be used, for a reason" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_test_uses_the_installer() -> None:
    """The recipe of `make test` contains the installer and no other installation."""
    command = ["make", "--dry-run", "--always-make", "test", "LOCK=yes"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "python tools/install.py --lock yes" in recipe
    assert "pip install" not in recipe


def test_wrong_hash_is_recognized_in_pip_output(tmp_path: Path) -> None:
    """`tools/install.py` recognizes the message of the installed pip."""
    wheel = tmp_path / "smnn_nothing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "smnn_nothing-1.0.dist-info"
        archive.writestr("smnn_nothing.py", "")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: smnn-nothing\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    listed = tmp_path / "listed.txt"
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-index"]
    command += ["--no-deps", "--require-hashes", "-r", str(listed)]
    command += ["--target", str(tmp_path / "there")]
    for digest, fine in (("0" * 64, False), (hashlib.sha256(wheel.read_bytes()).hexdigest(), True)):
        listed.write_text(f"{wheel} --hash=sha256:{digest}\n")
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (run.returncode == 0) == fine, run.stderr
        assert install.differs(run.stderr) == (not fine)
        assert (tmp_path / "there" / "smnn_nothing.py").exists() == fine
