"""Kernels in which a team of lanes shares a sequence, one column per lane (7 to 15 unknowns)."""
