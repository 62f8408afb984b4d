"""What a check found: whether it is well, and how to mend it where it is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How bad it is; only a problem changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's. `mend`: what to do, empty where nothing is to be done."""

    check: str
    level: Level
    text: str
    mend: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)
