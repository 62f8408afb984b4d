# ruff: noqa: INP001 - its directory is on the path, and is no package
"""In place of the package of this name, which kopf imports where it finds it: 25 MB."""

raise ImportError("the operator's image has no kubernetes_asyncio")
