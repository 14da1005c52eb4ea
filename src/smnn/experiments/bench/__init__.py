"""`smnn bench`: the solver's speed on this machine."""
