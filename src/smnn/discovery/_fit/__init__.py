"""Fitting: smoothing, regression, joint fit of states and coefficients, term selection."""
