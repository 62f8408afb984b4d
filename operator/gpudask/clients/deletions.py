"""What a reflector remembers of objects that are gone, for as long as anything older may still come.

An answer to one of our own writes, or a page of a list, may come after the event of a deletion, and must not revive
the object. A request takes 30 s at most, and while a list is read nothing is forgotten, so after `KEPT_SECONDS` it may
be: a few of such entries in each page of memory are enough to keep it, long after the thousand clusters that they were
of.
"""

from __future__ import annotations

from collections.abc import Callable

KEPT_SECONDS = 120.0
# Of each half: somebody may delete objects more quickly than they are forgotten.
_MOST = 5_000


class Deletions:
    """The versions at which objects were gone, by uid, in two halves: the older one is dropped as a whole.

    Each is kept for `kept_seconds` to twice as long. `clock`: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], kept_seconds: float = KEPT_SECONDS) -> None:
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._newer: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._turned_at = clock()

    def __len__(self) -> int:
        """The number of objects that are remembered."""
        return len(self._newer) + len(self._older)

    def note(self, uid: str, version: int) -> None:
        """Remember that an object was gone at `version`."""
        self.pop(uid)
        self._newer[uid] = version
        if len(self._newer) > _MOST:
            self._turn()

    def version(self, uid: str) -> int | None:
        """The version at which the object was gone; None: it is not known that it was."""
        return self._newer.get(uid, self._older.get(uid))

    def pop(self, uid: str) -> int | None:
        """The same, and forget it."""
        return self._newer.pop(uid, self._older.pop(uid, None))

    def clear(self) -> None:
        """Forget all: their versions mean nothing any more."""
        self._newer, self._older = {}, {}

    def forget_old(self) -> None:
        """Forget what is old, if anything is. To be called now and then, also while nothing is deleted."""
        if self._clock() - self._turned_at >= self._kept_seconds:
            self._turn()

    def _turn(self) -> None:
        self._newer, self._older = {}, self._newer
        self._turned_at = self._clock()
