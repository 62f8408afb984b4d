"""The plan of one pass, from what exists and what is wanted; and the status that reports on it.

Pure: observed values in, decisions out; the time is an argument. Execution is `reconcile`'s.
"""
