"""Private parts of the solver that tests need: the only test module that imports them."""

# ruff: noqa: F401
import importlib.util

from smnn._solver import plan
from smnn._solver.autograd import eager
from smnn._solver.cpu import program, swept
from smnn._solver.cpu.backend import CpuBackend
from smnn._solver.cpu.kernels import sweep
from smnn._solver.cpu.swept import SweptPlan
from smnn._solver.diagnostics import OK, SINGULAR, final_status
from smnn._solver.gpu import backend as gpu
from smnn._solver.gpu import launcher, strategy
from smnn._solver.gpu.backend import LARGEST_IN_A_LANE, REDUCED, GpuBackend
from smnn._solver.gpu.emit import interpreted
from smnn._solver.gpu.reduction import level as reduction_level
from smnn._solver.gpu.reduction import levels as reduction_levels
from smnn._solver.gpu.reduction import triangle as reduction_triangle
from smnn._solver.plan import Backend, Plan, backend_named, choose_backend
from smnn._solver.problem import Problem, Solved, make_problem
from smnn._solver.reference import dense_rows
from smnn._solver.rows import normal_residual, row_gradients, unit_link

TRITON = importlib.util.find_spec("triton") is not None

if TRITON:
    from smnn._solver.gpu import launch, programs
    from smnn._solver.gpu.emit import Source
    from smnn._solver.gpu.lane.eliminate import Spec
    from smnn._solver.gpu.launch import Kernel, Launch, Program, Slot
    from smnn._solver.gpu.reduction import programs as reduction_programs
    from smnn._solver.gpu.reduction import solve as reduction
    from smnn._solver.gpu.reduction import substitute as reduction_substitute
    from smnn._solver.gpu.reduction.blocks import Kind
    from smnn._solver.gpu.tile import panels, tiles
