"""Pool sizes, and the pods to retire, from demand and limits.

Pure arithmetic over values: no server, clock or randomness; times come in as seconds.
"""
