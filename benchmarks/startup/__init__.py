"""How long clusters take to start, grow and shrink: by hand, under gpudask's operator, under dask-kubernetes'.

`python -m benchmarks.startup`; docs/benchmarks.md says what is measured and how. One file a subject: `workload` (what
everybody runs), `floor`, `gpudask_operator` and `peer` (who runs it), `room` (where each does), `sight` (what is looked
at), `trial` (the steps and their clocks), `rounds` (their order), `machine` (where), `report` (the figures in words),
`occasion` (the run as a command). `benchmarks.clients` is built on the same parts.
"""
