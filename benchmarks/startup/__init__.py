"""The times of clusters to start, grow and shrink: by hand, under gpudask's operator, under dask-kubernetes'.

`python -m benchmarks.startup`; docs/benchmarks.md says what is measured and how. `participants`, with `peer`: what all
run, and who runs it; `trial`: the steps and their clocks; `run`: the rounds and the command line; `report`: the figures
in words. `python -m benchmarks.clients` has the same parts: `clients`, and `program`, which it measures.
"""
