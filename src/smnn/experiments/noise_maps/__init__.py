"""Discovery over noise and length of the data."""
