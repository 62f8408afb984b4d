"""The notes of a conversion, one line about a field each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Path = str


class Kind(StrEnum):
    """The weight of a note; all but hints make `--strict` fail."""

    LOST = "not carried over"
    ASSUMED = "assumed"
    HINT = "hint"


@dataclass(frozen=True)
class Note:
    """One line: which object, which field, what about it."""

    kind: Kind
    source: str
    path: Path
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.source}: {self.path}: {self.text}"


@dataclass
class Notes:
    """The notes of one run, in the order in which they came up."""

    items: list[Note] = field(default_factory=list)

    def lost(self, source: str, path: Path, text: str) -> None:
        """Note what has no counterpart."""
        self.items.append(Note(Kind.LOST, source, path, text))

    def assumed(self, source: str, path: Path, text: str) -> None:
        """Note a decision that the manifest leaves open."""
        self.items.append(Note(Kind.ASSUMED, source, path, text))

    def hint(self, source: str, path: Path, text: str) -> None:
        """Note what was carried over, and what this operator could do better."""
        self.items.append(Note(Kind.HINT, source, path, text))

    @property
    def lost_ones(self) -> list[Note]:
        """Those of what has no counterpart."""
        return [note for note in self.items if note.kind is Kind.LOST]

    @property
    def counted(self) -> list[Note]:
        """Those that make a strict conversion fail."""
        return [note for note in self.items if note.kind != Kind.HINT]
