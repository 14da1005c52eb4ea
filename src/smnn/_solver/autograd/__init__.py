"""Derivatives of the solver: in eager mode, and as registered operators for everything else."""
