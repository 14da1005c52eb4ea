"""The C++ files: a change of anything they are made of has them compiled anew."""

import re
import shutil
from pathlib import Path

import pytest

import smnn
from smnn._solver.cpu import native
from smnn._solver.gpu.native import launcher
from smnn._solver.gpu.native.extension import Extension

FOLDER = Path(smnn.__file__).parent / "_solver"
SOURCES = sorted(FOLDER.rglob("*.cpp"))


def test_both_are_known() -> None:
    assert [native.extension.source, launcher.SOURCE] == SOURCES


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_a_changed_header_is_noticed(source: Path, tmp_path: Path) -> None:
    included = re.findall(r'^#include "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    if source.parent.name == "cpu":
        pytest.skip("its header lies in another folder")
    for name in (source.name, *included):
        shutil.copy(source.parent / name, tmp_path / name)
    extension = Extension("_some", tmp_path / source.name)
    before = extension.compiled_file()
    assert before == extension.compiled_file()
    assert included
    for name in included:
        with (tmp_path / name).open("a", encoding="utf-8") as header:
            header.write("// changed\n")
        after = extension.compiled_file()
        assert after != before
        before = after
