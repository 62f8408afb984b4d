"""Kernels as loops, in the place of Numba."""
