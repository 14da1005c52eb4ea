"""Noisy damped sines fitted by a second-order ODE."""
