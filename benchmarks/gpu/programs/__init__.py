"""What runs in pods: it may import Dask, NumPy, CuPy and each other, and nothing else of this repository."""
