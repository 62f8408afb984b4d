"""The variables that make leaves to its recipes: a make that a test runs would take those of `make test` for its own.

It would then print "Entering directory" into what the test reads, and take part in the outer one's jobs.
"""

from __future__ import annotations

from collections.abc import MutableMapping

_OF_MAKE = (
    "GNUMAKEFLAGS",
    "MAKEFILES",
    "MAKEFLAGS",
    "MAKELEVEL",
    "MAKEOVERRIDES",
    "MAKE_TERMERR",
    "MAKE_TERMOUT",
    "MFLAGS",
)


def forget_make(environment: MutableMapping[str, str]) -> None:
    """Take them out of an environment."""
    for name in _OF_MAKE:
        environment.pop(name, None)
