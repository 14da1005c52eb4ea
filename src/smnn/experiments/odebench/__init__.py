"""Discovery on the 63 systems of ODEBench."""
