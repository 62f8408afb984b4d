"""The operator on a cluster, installed by its chart or run as a process of this machine.

For the demo, the tests and the benchmarks alike.
"""
