"""The edge: thin, typed access to the API server and to the Dask scheduler, each with one error type.

Nothing here decides anything; what is read is handed on, what is asked for is sent.
"""
