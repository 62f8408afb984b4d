"""Dask's JupyterLab extension with KubeCluster: a real JupyterLab and a real browser; the Kubernetes is played."""
