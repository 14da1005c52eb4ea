"""The `cpu` backend: Numba kernels that work on 16 sequences at a time."""
