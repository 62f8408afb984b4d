"""Orchestrators and libraries that run on Dask, of their real packages: `requirements/client-integrations.in`.

The programs in `in_pods/` run in a pod, as they do where an orchestrator's agent runs in Kubernetes.
"""
