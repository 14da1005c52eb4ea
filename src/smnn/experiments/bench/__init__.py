"""`smnn bench`: speed of the solver on this machine."""
