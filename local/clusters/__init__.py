"""The two kinds of cluster, each from its start to its end: a whole one, and an API server alone.

Here the other rooms come together: what `up` was asked for, the order in which parts start and end, what `status` says.
"""
