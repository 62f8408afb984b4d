"""Random histories of two operators that take a cluster's ledger over from each other, in virtual time.

GPU pods of one cluster come and go (`pods`) on an API server in memory (`api_server`). Beside it two operators
(`operators`) watch, elect a leader, and count GPU-seconds in passes of the product's own parts (`cluster_loop`):
registry, copy of the resource, ends of pods, ledger and status writer. Processes are killed and frozen, leaders change,
the API server hangs, refuses and loses answers, watches are cut, expire and fall behind (`faults`). While it hangs pods
come and go, as where the operators' way to it is cut; or it works for nobody (`--outages`), which operators know by the
product's own clock.

The oracle (`oracle`) is that of `tests/chaos`: what the statuses count, beside what the pods lived. One seed is one
history (`history`); `python -m tests.takeovers` plays many.
"""
