"""The Kubernetes API client: kubeconfig and credentials, one request, and the requests for clusters and pods.

Every failure is a KubeClusterError. Nothing here knows of Dask.
"""
