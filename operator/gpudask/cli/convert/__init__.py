"""Manifests of the stock Dask operator (`kubernetes.dask.org`) as GpuDaskClusters.

Pure: documents in, documents and notes out. Fields are those of dask-kubernetes 2026.3.0's resources:
https://kubernetes.dask.org/en/latest/operator_resources.html
"""
