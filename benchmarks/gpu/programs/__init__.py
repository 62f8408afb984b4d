"""Programs that run in pods: they may import Dask, NumPy, CuPy and each other, and nothing else of this repository.

`work` has the tasks, `session` the client of all programs and how figures leave it; workers import `warm` before they
register. Each of the others is a program: `python -m benchmarks.gpu.programs.compute` and so on.
"""
