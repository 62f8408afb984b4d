"""The testbed that the benchmarks share: clusters, watches, and the report of figures.

Clusters: `cluster` is an API server of its own with fake nodes and the fake Dask schedulers of `schedulers`; the
objects of `manifests` are made there by the operator, or by hand with `bare_client`. Watching: `watch` follows an API
server, `pods` keeps what it tells. Figures: `report` puts them in words, and says where they were taken.

`pods` and `report` need the standard library alone: `benchmarks.gpu` runs on machines that have little else.
No benchmark is imported here, and nothing of `tests`.
"""
