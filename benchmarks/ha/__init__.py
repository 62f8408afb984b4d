"""What a takeover costs: two operators, of which the leader is killed or stopped, again and again.

Runs on an API server of its own with played nodes and schedulers, as `benchmarks.scale` does; the operators are
processes with the chart's rights and environment. docs/ha-benchmark.md says what is measured.
"""
