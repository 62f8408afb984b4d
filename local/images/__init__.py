"""Images of containers, without an engine or a registry: built, written by hand, and put on the nodes.

`build` makes the project's own by buildah; `offline_operator` and `offline_worker` are for machines without network.
"""
