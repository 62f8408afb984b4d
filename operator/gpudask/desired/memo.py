"""What is made once of frozen objects and asked for many times: hashes of specs, pods but for their names.

The objects are told apart by identity: a cluster's spec is parsed once a generation, and comparing two of hundreds of
kilobytes would cost as much as making it anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class Memo(Generic[Made]):
    """At most `size` values; those asked for least recently go first, and those of objects that are gone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[Hashable, tuple[tuple[weakref.ref[Any], ...], Made]] = {}

    def get(self, objects: tuple[Any, ...], make: Callable[[], Made], *, more: Hashable = None) -> Made:
        """What `make` makes of these very objects, and of `more`, which is compared by value."""
        key = tuple(id(item) for item in objects), more
        known = self._values.pop(key, None)
        if known is None or any(there() is not item for there, item in zip(known[0], objects, strict=True)):
            references = tuple(weakref.ref(item, lambda _: self._values.pop(key, None)) for item in objects)
            known = references, make()
        self._values[key] = known
        while len(self._values) > self._size:
            del self._values[next(iter(self._values))]
        return known[1]
