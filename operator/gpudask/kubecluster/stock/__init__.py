"""What programs and manifests of others say, in our terms: dask-kubernetes' client and operator, and dask-cuda.

Pure: arguments, configuration and documents in; our arguments, documents, and notes or one error out. Fields are those
of dask-kubernetes 2026.3.0 and dask-cuda 26.10.0: https://kubernetes.dask.org/en/latest/operator_resources.html and
https://docs.rapids.ai/api/dask-cuda/stable/api/
"""
