"""How the operator fares with many clusters and pods, beside the same objects made by a bare client.

Runs on an API server of its own with played nodes and schedulers: no container runs, so the figures are the operator's
and the API server's. docs/scale-benchmark.md says what each measures.
"""
