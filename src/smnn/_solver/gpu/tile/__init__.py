"""Kernels in which one or a few warps process a sequence in tiles (16 to 256 unknowns)."""
