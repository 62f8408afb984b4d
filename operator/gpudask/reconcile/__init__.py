"""Observe, plan, execute, report: the only sequencer, one task for each cluster and one writer for each object.

Decisions are `planning`'s, requests `clients`'; what stands here is their order, and what to do when a request fails.
"""
