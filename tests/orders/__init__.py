"""Random orders of events for the whole operator, in virtual time: whatever comes late, everything ends as it should.

The operator's parts are put together as in production (`reconcile.operator`), on an API server in memory
(`api_server`): each request takes a random time until it takes effect, and its answer another one until it is here;
each watch tells all changes in their order, and falls behind by a time of its own; some answers are lost, some are
untrue. Beside it nodes run pods, end them and are lost (`node`), Dask schedulers run in some pods (`schedulers`), a
quota refuses pods and clusters (`quota`), and people edit, delete and make anew (`people`).

Then people rest. Once nothing changes any more the oracle (`history`) is a new operator, which reads everything anew:
what it finds to do the old one has missed. Another oracle (`ledger`) compares what is counted of GPUs with the pods.
`python -m tests.orders` runs many seeds; one seed is one history.
"""
