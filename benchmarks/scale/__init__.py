"""The operator with many clusters and pods, beside the same objects made by a bare client.

Runs on a simulated cluster of `benchmarks.testbed`: no container runs, so the figures are the operator's and the API
server's. docs/scale-benchmark.md says what each measures. `growth` and `latency` ask an `operator_process`, with its
`counters`. `blocks`, `join` and `preload` run real Dask schedulers: `python -m benchmarks.scale.blocks` and so on run
one alone.
"""
