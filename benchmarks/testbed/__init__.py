"""What the benchmarks share: on what they run, what they look at, and how figures are told and kept.

Clusters: `cluster` is an API server of its own, where `kwok` plays the nodes and `schedulers` the Dask schedulers, with
objects of `manifests`, sent by hand with `bare_client`. Watching: `watch` follows an API server, `pods` keeps what it
tells. Figures: `machine` says where they were taken, `report` puts them in words.

`machine`, `pods` and `report` need the standard library alone: `benchmarks.gpu` runs on machines that have little else.
No benchmark is imported here, and nothing of `tests`.
"""
