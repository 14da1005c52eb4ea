"""Test problems with known solutions, and small data sets."""

from smnn.datasets.odebench import STANDALONE, LinearOde

__all__ = ["STANDALONE", "LinearOde"]
