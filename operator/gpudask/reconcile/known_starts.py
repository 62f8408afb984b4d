"""How long pods took to start lately, in whichever cluster: a new cluster's first pod will take about as long."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudask.planning.start_times import Start

# A node that stands idle is taken away after ten minutes by default (Kubernetes' Cluster Autoscaler), and the image
# that it has with it; and a pod that is there is looked at once in ten minutes at least.
_KEPT_SECONDS = 1200.0


@dataclass(frozen=True, slots=True)
class _Known:
    start: Start
    told_at: float

    def holds(self, now: float) -> bool:
        return now - self.told_at <= _KEPT_SECONDS


class KnownStarts:
    """By spec hash, which is what a user asked of a pod. Losing it costs an estimate."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def tell(self, start: Start, now: float) -> None:
        """The pod that started so is there. It may have been told of before, and others may have started since."""
        known = self._known.get(start.spec_hash)
        if known is None or not known.holds(now):
            self._known = {spec_hash: each for spec_hash, each in self._known.items() if each.holds(now)}
            known = _Known(start, now)
        self._known[start.spec_hash] = replace(
            known, start=max(known.start, start, key=lambda each: each.at), told_at=now
        )

    def recall(self, spec_hash: str, now: float) -> float | None:
        """How many seconds the last one took, None where there was none in the last twenty minutes."""
        known = self._known.get(spec_hash)
        return known.start.seconds if known and known.holds(now) else None
