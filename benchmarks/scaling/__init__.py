"""A simulator: how close the policy comes to an oracle, in virtual time.

`python -m benchmarks.scaling`; docs/benchmarks.md says what is measured and what is simplified. One file a
subject: `trace` (what is submitted, and where it runs), `generator` (traces from a seed), `clock`, `kubernetes` and
`scheduler` (the world, thin), `world` (all of it together), `gpudask_policy`, `adaptive` and `fixed` (who sizes the
pools), `graph`, `least_held` and `oracle` (lower bounds), `figures`, `report` and `plot` (what came of it).
"""
