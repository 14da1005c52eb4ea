"""Waves on a circle: trajectories of the Korteweg-de Vries equation, their symmetries, their files.

The "easy" data of Brandstetter, Welling and Worrall (2022), generated anew from a seed.
"""

from smnn.datasets._kdv_easy import SPLITS as SPLITS
from smnn.datasets._kdv_easy import Split as Split
from smnn.datasets._kdv_easy import Trajectories as Trajectories
from smnn.datasets._kdv_easy import Waves as Waves
from smnn.datasets._kdv_easy import draw as draw
from smnn.datasets._kdv_easy import easy as easy
from smnn.datasets._kdv_easy import simulate as simulate
from smnn.datasets._kdv_files import KdVFileError as KdVFileError
from smnn.datasets._kdv_files import read_file as read_file
from smnn.datasets._kdv_files import write_easy as write_easy
from smnn.datasets._kdv_solver import Form as Form
from smnn.datasets._kdv_solver import derivative as derivative
from smnn.datasets._kdv_solver import evolve as evolve
from smnn.datasets._kdv_symmetry import Frames as Frames
from smnn.datasets._kdv_symmetry import Symmetries as Symmetries
from smnn.datasets._kdv_symmetry import boost as boost
from smnn.datasets._kdv_symmetry import mirror as mirror
from smnn.datasets._kdv_symmetry import rescale as rescale
from smnn.datasets._kdv_symmetry import shift as shift
