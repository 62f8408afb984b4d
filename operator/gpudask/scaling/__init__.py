"""From demand and limits to pool sizes, and to the pods that leave.

Pure arithmetic over values: no server, clock or randomness; times come in as seconds.
"""
