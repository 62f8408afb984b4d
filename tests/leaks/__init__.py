"""Leaks: programs that make a cluster each on the real local cluster, and are then ended in every way there is.

`ways` names the ways and says by a seed which program ends how (pure). `program` is what is started, a process each,
with an `access` to the API server that may be spoilt: through a `proxy`, or by a token that ends. `run` starts and ends
them in lanes, `watch` looks on until their clusters are gone, and `report` says what was left (pure).
"""
