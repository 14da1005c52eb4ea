"""Pins, hashes and licences: what is installed is what was looked at."""

import importlib.util
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


licences, lock = tool("licences"), tool("lock")


@pytest.mark.parametrize("name", [n for n in licences.pins() if licences.is_installed(n)])
def test_licences_are_among_those_allowed(name: str) -> None:
    assert licences.allowed(licences.licence(name)), licences.licence(name)


def test_licences_that_are_not_allowed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("GPL-3.0-only", "MIT AND GPL-3.0-only", "unknown", "AGPL-3.0 OR LicenseRef-X", ""):
        assert not licences.allowed(text)
    for text in ("MIT", "GPL-2.0 OR MIT", "MIT AND (BSD-3-Clause OR GPL-3.0-only)"):
        assert licences.allowed(text)
    monkeypatch.setattr(licences, "licence", lambda name: "GPL-3.0-only")
    assert any("numpy is under 'GPL-3.0-only'" in problem for problem in licences.problems())


def test_the_page_lists_what_is_pinned() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    table = text.split(licences.BEGIN)[1].split(licences.END)[0]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    assert {row[0]: row[1] for row in rows} == licences.pins()
    for name, _, stated, _ in (row for row in rows if licences.is_installed(row[0])):
        assert stated == licences.licence(name), name


def test_every_direct_dependency_is_explained() -> None:
    assert set(licences.direct()) <= set(licences.WHY)
    assert set(licences.WHY) <= set(licences.pins())


def test_every_pin_but_one_is_locked() -> None:
    pins = lock.pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    hashes = lock.locked((ROOT / "requirements-ci.lock").read_text(encoding="utf-8"))
    assert set(hashes) == {pin for name, pin in pins.items() if name not in lock.UNLOCKED}
    assert {"torch"} == lock.UNLOCKED
    assert all(hashes.values())


def test_the_lock_is_written_as_it_is_read(tmp_path: Path) -> None:
    hashes = {"b==2": {"1" * 64, "0" * 64}, "a==1.0": {"f" * 64}}
    text = lock.write(hashes, "# head\n")
    assert lock.locked(text) == hashes
    assert text.startswith("# head\na==1.0 \\\n    --hash=sha256:ffff")
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"x")
    (tmp_path / "b-2.tar.gz").write_bytes(b"y")
    (tmp_path / "notes.txt").write_bytes(b"z")
    assert set(lock.files(tmp_path)) == {("a", "1.0"), ("b", "2")}
