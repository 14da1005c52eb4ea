"""The `gpu` backend: generated Triton kernels, parallel over the batch and over time."""
