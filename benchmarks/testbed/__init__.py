"""The testbed that the benchmarks share: clusters, watches, and the report of figures. No benchmark is imported here.

`cluster`: an API server of its own with fake nodes and the fake Dask `schedulers`. `manifests`: what is made there, by
the operator or by hand with `bare_client`. `watch` follows an API server, `pods` keeps what it tells. `report`: figures
in words, and the machine. `pods` and `report` need the standard library alone: `benchmarks.gpu` has little else.
"""
