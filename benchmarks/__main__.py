"""`python -m benchmarks` runs `benchmarks/bench_solver.py`."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
runpy.run_path(str(HERE / "bench_solver.py"), run_name="__main__")
