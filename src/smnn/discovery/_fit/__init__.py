"""Fitting coefficients and states, and selecting terms."""
