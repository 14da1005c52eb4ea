"""Nonlinear differential equations: initial values, boundary values, and data.

All functions take a plain function of torch tensors, iterate over whole trajectories, and return a
`Solution`, which says for each sample whether it can be used.
"""

from smnn.nonlinear._boundary import solve_bvp
from smnn.nonlinear._data import smooth
from smnn.nonlinear._initial import odeint
from smnn.nonlinear._solution import Solution

__all__ = ["Solution", "odeint", "smooth", "solve_bvp"]
