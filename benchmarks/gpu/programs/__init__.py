"""Programs that run in pods: they may import Dask, NumPy, CuPy and each other, and nothing else of this repository."""
