"""The way to a scheduler: its Service inside Kubernetes, an outside address, or a forwarded port.

What is forwarded goes through the API server, which kube/ asks.
"""
