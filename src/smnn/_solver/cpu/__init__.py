"""The `cpu` backend: kernels in LLVM code that process 16 sequences per SIMD group."""
