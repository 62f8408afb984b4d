"""How long pods of a kind took to start lately, in whichever cluster: a new cluster's first pod will take as long."""

from __future__ import annotations

from dataclasses import dataclass

# A node that stands idle is taken away after ten minutes by default (Kubernetes' Cluster Autoscaler), and the image
# that it has with it; and a pod that is there is looked at once in ten minutes at least.
_KEPT_SECONDS = 1200.0


@dataclass(frozen=True, slots=True)
class _Start:
    seconds: float
    told_at: float


class KnownStarts:
    """By kind, which is the hash of what a user asked of a pod (`spec_hash`). Losing it costs an estimate."""

    def __init__(self) -> None:
        self._starts: dict[str, _Start] = {}

    def tell(self, kind: str, seconds: float, now: float) -> None:
        """A pod of this kind is there, which took so long from its creation until its workers were registered."""
        if kind not in self._starts:
            self._starts = {kind: start for kind, start in self._starts.items() if _holds(start, now)}
        self._starts[kind] = _Start(seconds, now)

    def recall(self, kind: str, now: float) -> float | None:
        """How long the last one took, None where there was none in the last twenty minutes."""
        start = self._starts.get(kind)
        return start.seconds if start and _holds(start, now) else None


def _holds(start: _Start, now: float) -> bool:
    return now - start.told_at <= _KEPT_SECONDS
