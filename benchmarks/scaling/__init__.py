"""A simulator: how close the policy comes to an oracle, in virtual time.

`python -m benchmarks.scaling`; docs/scaling-benchmark.md says what is measured and what is simplified. `trace`: what is
submitted, and where it runs, drawn from a seed. `clock`, `kubernetes` and `scheduler`: the world, thin; `world`: all of
it together. `policies`: who sizes the pools. `oracle`: lower bounds.
"""
