"""The C++ files: a change of anything they are made of has them compiled anew."""

import re
import shutil
from pathlib import Path

import pytest

import smnn._backends
from smnn._backends import _cpu_native, _gpu_native
from smnn._backends._native import Extension

FOLDER = Path(smnn._backends.__file__).parent
SOURCES = sorted(FOLDER.glob("*.cpp"))


def test_both_are_known() -> None:
    assert [_cpu_native.extension.source, _gpu_native.SOURCE] == SOURCES


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.name)
def test_a_changed_header_is_noticed(source: Path, tmp_path: Path) -> None:
    included = re.findall(r'^#include "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE)
    for name in (source.name, *included):
        shutil.copy(FOLDER / name, tmp_path / name)
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
