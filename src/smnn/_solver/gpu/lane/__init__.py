"""Kernels in which one lane works on a sequence, or on a piece of one (up to 12 unknowns)."""
