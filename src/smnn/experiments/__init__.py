"""The experiments of the paper: each computes numbers, writes them as JSON and shows them."""
