"""The Kubernetes objects that a spec asks for.

Pure: a cluster in, JSON objects out; no server, clock or randomness. What must differ from pod to pod
(a number, a nonce) is an argument.
"""
