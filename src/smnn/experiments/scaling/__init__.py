"""Error, time and memory against the length of a series."""
