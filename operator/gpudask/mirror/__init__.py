"""The mirror: each cluster as the `kubernetes.dask.org` objects of the stock Dask client, and what people change there.

Pure are `objects` (the objects as they should be), `state` (as they are) and `overrides` (what people's changes ask
for): values in, decisions out; the time is an argument. `definitions` (whether the kinds exist, and the caches of their
objects) and `sync` (one cluster's changes and writes) make requests to the API server. `reconcile` calls them; nothing
here imports it.

For users: docs/stock-client.md. Why it is so: docs/adr/0022-mirror.md.
"""
