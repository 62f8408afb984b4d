"""The holds of one pool, and the size that stood before the first. Pure: JSON in, JSON out.

`spec.overrides` has one entry for a pool: the newest hold's. What is below it is noted beside it, in an annotation of
the cluster, because holds may end in any order, and those of several programs know nothing of each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from gpudask.kubecluster import overrides

Json = dict[str, Any]


class Holds(BaseModel):
    """The holds of one pool that have not ended.

    Attributes:
        before: the override that stood before the first; None: there was none.
        entries: the overrides that the holds want, the newest last. `by` tells them apart.
    """

    model_config = ConfigDict(frozen=True)

    before: Json | None = None
    entries: tuple[Json, ...] = ()

    @classmethod
    def of(cls, body: Json, pool: str, *, now: datetime, own: str = "") -> Self:
        """The holds of `pool`; none where somebody else has set its size since.

        Args:
            body: the cluster.
            pool: one of its pools.
            now: holds whose time is over have ended: their programs were killed.
            own: `by` of a hold whose program is alive, whatever the time: it asks.
        """
        entry = overrides.entry_of(body, pool)
        noted = cls._noted(overrides.note_of(body, pool))
        if entry is None or not noted.entries or not _is_same(entry, noted.entries[-1]):
            return cls(before=entry)
        living = tuple(item for item in noted.entries if item.get("by") == own or not _has_ended(item, now))
        # Those that were killed give nothing back, and nobody knows how old that would be.
        return cls(before=noted.before, entries=living) if living else cls()

    def size(self, now: datetime) -> Json | None:
        """The override that counts: the newest hold's, else what stood before and has not ended; None: the manifest."""
        if self.entries:
            return self.entries[-1]
        return None if self.before is None or _has_ended(self.before, now) else self.before

    def note(self) -> str | None:
        """What to note on the cluster; None: nothing."""
        return self.model_dump_json() if self.entries else None

    def has(self, by: str) -> bool:
        """Whether the hold `by` is among them."""
        return any(item.get("by") == by for item in self.entries)

    def put(self, entry: Json) -> Self:
        """With this entry of a hold: in the place of its last one, else on top."""
        kept = tuple(entry if item.get("by") == entry["by"] else item for item in self.entries)
        return type(self)(before=self.before, entries=kept if self.has(entry["by"]) else (*kept, entry))

    def without(self, by: str) -> Self:
        """Without the hold `by`."""
        return type(self)(before=self.before, entries=tuple(item for item in self.entries if item.get("by") != by))

    @classmethod
    def _noted(cls, note: str | None) -> Self:
        try:
            return cls.model_validate_json(note or "{}")
        except ValueError:  # somebody's own text
            return cls()


def _is_same(one: Json, other: Json) -> bool:
    return (one.get("by"), one.get("replicas")) == (other.get("by"), other.get("replicas"))


def _has_ended(entry: Json, now: datetime) -> bool:
    return "until" in entry and datetime.fromisoformat(entry["until"]) <= now
