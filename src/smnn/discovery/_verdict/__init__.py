"""Verdicts: whether data support the equations that were fitted to them."""
