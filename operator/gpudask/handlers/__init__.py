"""kopf's side: start-up, shutdown, probes and credentials, and the events of clusters, handed on as wake-ups.

The only importer of kopf. A handler parses, calls one thing, and returns nothing (a value would become a status patch).
"""
