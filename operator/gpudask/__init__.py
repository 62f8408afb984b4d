"""gpudask: a Kubernetes operator for mixed CPU/GPU Dask clusters.

The layers, each importing only what stands to its right:
`__main__ -> handlers -> reconcile -> clients -> planning -> desired | scaling -> api`.
"""
