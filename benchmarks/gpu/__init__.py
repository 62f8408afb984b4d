"""The operator on real GPUs, measured: `python -m benchmarks.gpu`; docs/gpu-benchmark.md says what and how.

`programs/` runs in pods and imports nothing of the rest, and `stand_in` takes CuPy's place there in a dry run. The
`measurements` have a `runner`, with clusters and pods, through kubectl, that `manifests` writes. `report` keeps what
came of it, says it in words with `figures`, and draws it.
"""
