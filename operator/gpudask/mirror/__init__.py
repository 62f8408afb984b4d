"""The mirror: each cluster as the `kubernetes.dask.org` objects of the stock Dask client, and what people change there.

Pure, with no server, clock or randomness: `objects` (what is written), `state` (what is there) and `overrides` (what
people's changes ask of the cluster). They talk to the API server: `definitions` (whether the kinds are there, and the
caches of their objects) and `sync` (the order of it all, for one cluster). When that is done `reconcile` says.

What works for users is in docs/stock-client.md, and why it is so in docs/adr/0022-mirror.md.
"""
