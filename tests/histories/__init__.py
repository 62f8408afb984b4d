"""Random histories of a whole Dask cluster with the preload, in simulated time, judged by an oracle.

A real scheduler, real workers, real clients and the real preload run in one process, on an event loop whose clock
jumps (`loop`), with functions in threads of which one at a time runs (`threads`), over connections whose delays a seed
draws (`network`). A history is a list of moves (`moves`): work that clients submit (`tasks`), and what befalls the
cluster meanwhile. One seed is one history, event for event. `oracle` says what must hold, during it and at its end.
`history` makes, runs and shortens histories; `python -m tests.histories` runs many of them.

`loop` replaces the clocks of the `time` module, so a simulation has a process of its own and imports it first.
"""
