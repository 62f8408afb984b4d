"""The API server: which one and as whom, one request, and what is asked of it.

Every failure is a KubeClusterError. Nothing here knows of Dask.
"""
