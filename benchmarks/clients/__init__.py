"""How long a Python program waits for a cluster of two workers: gpudask's KubeCluster beside the stock client's.

`python -m benchmarks.clients`; docs/benchmarks.md says what is measured and how. Rounds, rooms, the floor's pods and
the peer's operator are those of `benchmarks.startup`. Here: `program` (the user's program, the same for both clients),
`program_process` (how it is run), `contestants`, `trial` (one turn) and `report` (the figures in words).
"""
