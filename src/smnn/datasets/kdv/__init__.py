"""Trajectories of the Korteweg-de Vries equation on a circle, their symmetries and files.

The data follow the "easy" data set of Brandstetter, Welling and Worrall (2022).
"""

from smnn.datasets.kdv._easy import SPLITS as SPLITS
from smnn.datasets.kdv._easy import Split as Split
from smnn.datasets.kdv._easy import Trajectories as Trajectories
from smnn.datasets.kdv._easy import Waves as Waves
from smnn.datasets.kdv._easy import draw as draw
from smnn.datasets.kdv._easy import easy as easy
from smnn.datasets.kdv._easy import simulate as simulate
from smnn.datasets.kdv._files import KdVFileError as KdVFileError
from smnn.datasets.kdv._files import read_file as read_file
from smnn.datasets.kdv._files import write_easy as write_easy
from smnn.datasets.kdv._solver import Form as Form
from smnn.datasets.kdv._solver import derivative as derivative
from smnn.datasets.kdv._solver import evolve as evolve
from smnn.datasets.kdv._symmetry import Frames as Frames
from smnn.datasets.kdv._symmetry import Symmetries as Symmetries
from smnn.datasets.kdv._symmetry import boost as boost
from smnn.datasets.kdv._symmetry import rescale as rescale
from smnn.datasets.kdv._symmetry import shift as shift
