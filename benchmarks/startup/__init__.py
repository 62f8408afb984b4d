"""The times of clusters to start, grow and shrink: by hand, under gpudask's operator, under dask-kubernetes'.

`python -m benchmarks.startup`; docs/benchmarks.md says what is measured and how. `participants`, with `peer`: what all
run, and who runs it; `run`: the rounds and the command line; `report`: the figures in words. `benchmarks.clients` is
built on these, and measures `program`.
"""
