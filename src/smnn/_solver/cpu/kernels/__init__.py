"""Kernels written as LLVM code."""
