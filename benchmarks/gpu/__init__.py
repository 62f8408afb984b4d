"""The operator on real GPUs, measured: `python -m benchmarks.gpu`; docs/gpu-benchmark.md says what and how.

`programs/` runs in pods and imports nothing of the rest; each of `compute`, `overhead`, `first`, `pipeline`,
`retirement` and `transfer` stages one measurement on a `stage` (pods through `kubectl`, seen by `sight`, written by
`manifests`); `results` keeps what came of it, `figures` and `report` say it in words, `plot` draws it.
"""
