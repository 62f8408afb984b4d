"""The loops of jobs: a pass observes, plans (`gpudask.jobs`), executes, and writes the status.

Loops, back-offs and turns are those of clusters (`reconcile.pass_loop`), and so are the clients and the caches.
"""
