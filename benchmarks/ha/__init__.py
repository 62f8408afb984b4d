"""The cost of a takeover: two operators, of which the leader is killed or stopped, again and again.

Runs on a simulated cluster of `benchmarks.testbed`; the operators are processes with the rights and the environment of
the chart. docs/ha-benchmark.md says what is measured.
"""
