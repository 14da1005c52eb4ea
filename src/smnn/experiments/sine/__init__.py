"""The sine experiment of the paper."""
