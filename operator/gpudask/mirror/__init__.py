"""The mirror: clusters of ours as `kubernetes.dask.org` objects, and such objects of people's as clusters of ours.

Each cluster shows as the objects of the stock Dask client, and what people change there is taken over; each DaskCluster
that somebody made is served by a cluster of its name.

Pure are `objects` (the objects as they should be), `state` (as they are), `overrides` (what people's changes ask for),
`leftovers` (what the stock operator left of a cluster), and `told` (what is written to what people made): values in,
decisions out; the time is an argument. `definitions` (whether the kinds exist, and the caches of their objects), `sync`
(one cluster's changes and writes), `serving` (what people made), of that `jobs` (DaskJobs), and `takeover` (what the
stock operator ran) make requests to the API server. `reconcile` calls them; nothing here imports it.

For users: docs/stock-client.md. Why it is so: docs/adr/0022-mirror.md, docs/adr/0052-stock-objects.md,
docs/adr/0056-takeover.md.
"""
