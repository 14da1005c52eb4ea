"""Kernels with one lane per sequence, or per piece of one (up to 12 unknowns per time)."""
