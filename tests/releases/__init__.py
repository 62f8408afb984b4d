"""Environments with another release of distributed than the image's, for programs and for the preload's tests.

`environment` makes them from `requirements/client-<release>.lock` and `requirements/preload-<release>.lock`. In the
first runs `program`, and `tests/kubecluster/test_releases.py` (a server in this process) and
`tests/e2e/test_releases.py` read what it prints; in the second, `tests/preload/test_releases.py` runs its neighbours.
"""
