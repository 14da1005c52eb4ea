"""Known partial differential equations recovered from noisy fields, by smnn and PySINDy."""
