"""From demand and limits to pool sizes, and to who leaves.

Pure arithmetic over values: no server, clock or randomness; times come in as seconds. One policy a file.
"""
