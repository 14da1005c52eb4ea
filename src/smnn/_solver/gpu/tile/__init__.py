"""Kernels in which one or a few warps work on a sequence by tiles (16 to 256 unknowns)."""
