"""Programs in environments of their own, each with another release of distributed than the image's.

`environment` makes them from `requirements/client-<release>.lock`; `program` is what runs there, and
`tests/kubecluster/test_releases.py` (a server in this process) and `tests/e2e/test_releases.py` read what it prints.
"""
