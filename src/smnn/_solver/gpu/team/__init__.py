"""Kernels in which the lanes of a warp share a sequence, a column each (7 to 15 unknowns)."""
