"""Clients: thin, typed access to the API server and to the Dask scheduler, each with one error type.

The only room with network I/O. Nothing here decides anything about a cluster.
"""
