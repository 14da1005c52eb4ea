"""The KdV experiment of the paper."""
