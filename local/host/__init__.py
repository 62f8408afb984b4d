"""This machine, seen from a Python program: commands, processes, ports, locks, shared libraries, the terminal.

Nothing here knows of Kubernetes. `lock` takes the standard library alone: a bundle is received with it.
"""
