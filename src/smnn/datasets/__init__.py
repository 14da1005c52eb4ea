"""Test problems with known solutions, and small data sets."""

from smnn.datasets.odebench import STANDALONE as STANDALONE
from smnn.datasets.odebench import LinearOde as LinearOde

__all__ = ["STANDALONE", "LinearOde"]
