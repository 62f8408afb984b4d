"""The command line `gpudask`, which is also `kubectl gpudask`.

A command is a file of `commands`: it parses flags, calls the API server (`client.py`), and hands what came to a
pure function that makes rows or lines of it; the rooms `cost` and `report` are such functions alone. Results go to
standard output, everything else to standard error.
distributed and httpx load when a command needs them. The operator never imports this package.
"""
