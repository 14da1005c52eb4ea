"""The `cpu` backend: Numba kernels that process 16 sequences per SIMD group."""
