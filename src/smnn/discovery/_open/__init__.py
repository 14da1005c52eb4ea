"""Terms with constants inside: which of them explain the data, and with which constants."""
