"""The demonstration: the mixed example on a running cluster, watched, recorded, summed up and plotted.

`model`, `summary` and `overlay` are pure; `watching` and `pipeline` bring facts in; `view`, `lines` and `plot` draw.
"""
