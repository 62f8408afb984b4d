"""The operator with many clusters and pods, beside the same objects made by a bare client.

Runs on a simulated cluster of `benchmarks.testbed`: no container runs, so the figures are the operator's and the API
server's. docs/scale-benchmark.md says what each measures. `blocks`, `join` and `preload` run real Dask schedulers, as
`processes` but for `blocks`; `python -m benchmarks.scale.blocks` and so on run one alone.
"""
