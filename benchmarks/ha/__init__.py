"""The cost of a takeover: two operators, of which the leader is killed or stopped, again and again.

Runs on a simulated cluster of `benchmarks.testbed`; docs/ha-benchmark.md says what is measured. `takeover`: two
operators and what is done to them; `replica`: one of these, a process with the rights and the environment of the chart;
`observer`: what must never be seen meanwhile.
"""
