"""What is there, against what should be: a plan for one pass, and the status that tells about it.

Pure: observed values in, decisions out; the time is an argument. Execution is `reconcile`'s.
"""
