"""Chaos: programs with known answers on the real local cluster, beside faults of all that they stand on.

`plan` says by a seed which fault begins when (pure), `faults/` inflicts and undoes them on the `target`, `workloads`
runs clusters and the programs in them, `observer` looks on, and `audit` says of what was seen what is wrong, lost,
stuck or leaked (pure).
"""
