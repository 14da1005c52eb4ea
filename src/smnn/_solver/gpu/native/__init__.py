"""C++ launcher of the GPU kernels."""
