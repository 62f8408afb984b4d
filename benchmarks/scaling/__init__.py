"""A simulator: how close the policy comes to an oracle, in virtual time.

`python -m benchmarks.scaling`; docs/scaling-benchmark.md says what is measured and what is simplified. `trace`: what is
submitted, and where it runs, drawn from a seed. `clock`, `kubernetes` and `scheduler`: a cluster, thin. `simulation`: a
run of all of it. `policies`: who sizes the pools. `oracle`: lower bounds.
"""
