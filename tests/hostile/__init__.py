"""Attacks by a user who may edit one namespace, beside the clusters of somebody else in another namespace.

`attacks/` holds the attacks as data; `platform` is where they are made: here an API server with a node that is played,
and the operator as a process of its own. What an attack sends knows nothing of that, so another platform can take them.
"""
