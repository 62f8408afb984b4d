"""The end of a cluster, as its loop hears of it."""

from __future__ import annotations


class ClusterGoneError(Exception):
    """The cluster does not exist any more: its loop ends."""
