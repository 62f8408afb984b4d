"""Many jobs on an API server beside faults of every kind of write for them; see `python -m tests.chaos_jobs --help`.

The jobs, what is asked of each (`jobs.py`), the faults between the operator and the API server (`faults.py`), the node
that plays their programs (`node.py`), and an observer of its own (`observer.py`); `run.py` puts them together.
"""
