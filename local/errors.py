"""The one error that the command line turns into a message instead of a traceback."""

from __future__ import annotations


class LocalClusterError(Exception):
    """Something the user can act on: the text names the thing, what came and what to do."""
