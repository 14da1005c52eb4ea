"""Recovery of known equations from noisy data by smnn and PySINDy."""
