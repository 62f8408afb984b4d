# ruff: noqa: INP001 - its directory is on the path, and is no package
"""In place of the package of this name, which kopf imports where it finds it."""

raise ImportError("the operator's image has no pykube")
