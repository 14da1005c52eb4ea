"""Trajectories of the Korteweg-de Vries equation on a circle, their symmetries and files.

The data follow the "easy" data set of Brandstetter, Welling and Worrall (2022).
"""

from smnn.datasets.kdv._easy import SPLITS, Split, Trajectories, Waves, draw, easy, simulate
from smnn.datasets.kdv._files import KdVFileError, read_file, write_easy
from smnn.datasets.kdv._solver import Form, derivative, evolve
from smnn.datasets.kdv._symmetry import Frames, Symmetries, boost, rescale, shift

__all__ = [
    "SPLITS",
    "Form",
    "Frames",
    "KdVFileError",
    "Split",
    "Symmetries",
    "Trajectories",
    "Waves",
    "boost",
    "derivative",
    "draw",
    "easy",
    "evolve",
    "read_file",
    "rescale",
    "shift",
    "simulate",
    "write_easy",
]  # fmt: skip
