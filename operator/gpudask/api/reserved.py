"""Labels and annotations that are the operator's, or Dask's in the operator's hand: nobody else's to write.

By them the operator knows its pods, and what it meant to do with them: one that a template set would have it create and
delete the same pod for ever. The CRD refuses them; where an older CRD let them in they are left out, and the condition
`Accepted` says so.
"""

from __future__ import annotations

from gpudask.api.rules import Rule

RESERVED_PREFIXES = ("gpudask.dev/", "dask.org/")
_LISTED = " or ".join(RESERVED_PREFIXES)


def without_reserved(metadata: dict[str, str]) -> dict[str, str]:
    """`metadata`, labels or annotations, without the keys that are reserved."""
    return {key: value for key, value in metadata.items() if not key.startswith(RESERVED_PREFIXES)}


def reserved(metadata: dict[str, str]) -> list[str]:
    """The reserved keys of `metadata`, labels or annotations."""
    return sorted(key for key in metadata if key.startswith(RESERVED_PREFIXES))


def no_reserved_keys(field: str) -> Rule:
    """`field`, labels or annotations, has no reserved key. The operator does not refuse them: it leaves them out."""
    starts = " || ".join(f"k.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)
    return Rule(
        f"!has(self.{field}) || !self.{field}.exists(k, {starts})",
        f"keys that start with {_LISTED} belong to the operator, which knows its pods by them: remove them, or write a"
        " prefix of your own, such as example.com/team",
        None,
        f".{field}",
    )
