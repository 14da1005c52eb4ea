"""Everything works in an installation that cannot be written to, without a home directory."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import smnn

WORK = """
import numpy as np
import smnn, torch
from smnn.discovery import Discovery, Polynomial

c = torch.tensor([1.0, 1.0], dtype=torch.float64).view(1, 1, 1, 2)
y = smnn.solve(c, c.new_zeros(1, 1), c.new_ones(1, 1, 1), c.new_full((50,), 0.02), order=4)
assert abs(y[-1, 0, 0].item() - 0.36787944117144233) < 1e-8
t = np.linspace(0, 6, 40)
Discovery(Polynomial(1)).fit(np.exp(-t)[:, None], t)
print(smnn.__file__)
"""


@pytest.mark.slow
def test_read_only_installation_without_a_home(tmp_path: Path) -> None:
    package = tmp_path / "smnn"
    shutil.copytree(
        Path(smnn.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in [package, *(p for p in package.rglob("*") if p.is_dir())]:
        (folder / "__pycache__").touch()  # not even the superuser can create files below a file
    env = {k: x for k, x in os.environ.items() if not k.startswith(("XDG_", "PYTHONPATH"))}
    env |= {"HOME": "/dev/null", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", WORK]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == package
