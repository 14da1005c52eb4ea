"""Discovery of known systems from noisy data, compared with PySINDy."""
