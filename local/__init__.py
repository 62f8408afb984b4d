"""A real Kubernetes on one machine, built from parts: no container engine, no registry.

Everything here serves development and tests; nothing of it ships with the operator. `python -m local` is the command
line; `local.clusters` has the library, `Cluster` and `ApiServer`. Imports go one way: see `[tool.importlinter]`.
"""
