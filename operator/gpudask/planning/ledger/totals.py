"""The totals of a pool in the ledger: its GPU-seconds by cause and owner."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpudask.api.reasons import Cause
from gpudask.api.status import CauseSeconds, OwnerSeconds, PoolStatus

OWNERS = 20  # kept apart in a pool; the others count under ""
OTHERS = ""  # what the pools have in one row that have none of their own: no pool can be named so

_DIGITS = 3  # of GPU-seconds in the status

Seconds = Mapping[Cause, float]  # GPU-seconds


@dataclass(frozen=True, slots=True)
class PoolCount:
    """A pool's totals, and its GPUs by cause now. `changed`: whether the last count added anything.

    `surplus`: GPU-seconds in them of pods that had ended by then, as was told later. Counters go up only: what is
    counted next makes up for it.
    """

    seconds: Seconds = field(default_factory=dict)
    owners: Mapping[str, float] = field(default_factory=dict)
    gpus: Mapping[Cause, int] = field(default_factory=dict)
    changed: bool = False
    surplus: float = 0.0

    def causes(self) -> list[CauseSeconds]:
        """The status' `causes`, by precedence: those that hold GPUs, or did."""
        return [
            CauseSeconds(
                cause=cause, gpus=self.gpus.get(cause, 0), gpu_seconds=round(self.seconds.get(cause, 0.0), _DIGITS)
            )
            for cause in Cause
            if self.gpus.get(cause) or self.seconds.get(cause)
        ]

    def owner_rows(self) -> list[OwnerSeconds]:
        """The status' `owners`, by name."""
        return [
            OwnerSeconds(owner=owner, gpu_seconds=round(seconds, _DIGITS))
            for owner, seconds in sorted(self.owners.items())
        ]

    def in_status(self, row: PoolStatus) -> PoolStatus:
        """`row` with these counters."""
        causes = self.causes()
        return row.model_copy(
            update={
                "gpus_held": sum(each.gpus for each in causes),
                "gpus_busy": self.gpus.get(Cause.WORKING, 0),
                "gpu_seconds_held": round(sum(each.gpu_seconds for each in causes), _DIGITS),
                "gpu_seconds_used": round(self.seconds.get(Cause.WORKING, 0.0), _DIGITS),
                "gpu_seconds_surplus": round(self.surplus, _DIGITS),
                "causes": causes,
                "owners": self.owner_rows(),
            }
        )

    @classmethod
    def of(cls, row: PoolStatus) -> PoolCount:
        """Those of a status; of an older operator's, or where the definition is older, the two sums that it has."""
        causes = {each.cause: each for each in row.causes}
        seconds: defaultdict[Cause, float] = defaultdict(float)
        gpus: Counter[Cause] = Counter()
        if not causes:
            held, used = max(0.0, row.gpu_seconds_held), max(0.0, row.gpu_seconds_used)
            seconds[Cause.WORKING] = min(used, held)
            seconds[Cause.WAITING_IDLE_TIMEOUT] = max(0.0, held - used)
            gpus[Cause.WORKING] = max(0, min(row.gpus_busy, row.gpus_held))
            gpus[Cause.WAITING_IDLE_TIMEOUT] = max(0, row.gpus_held) - gpus[Cause.WORKING]
        for name, each in causes.items():
            cause = Cause(name) if name in set(Cause) else Cause.WAITING_IDLE_TIMEOUT  # a newer operator's
            seconds[cause] += max(0.0, each.gpu_seconds)
            gpus[cause] += max(0, each.gpus)
        owners = {each.owner: max(0.0, each.gpu_seconds) for each in row.owners[: OWNERS + 1]}
        surplus = max(0.0, min(row.gpu_seconds_surplus, sum(seconds.values())))
        return cls({cause: amount for cause, amount in seconds.items() if amount}, owners, +gpus, surplus=surplus)

    def with_others(self, other: PoolCount) -> PoolCount:
        """The same with what `other`, which holds no GPUs any more, has held in all."""
        other = other.settled()
        seconds = defaultdict(float, self.seconds)
        for cause, amount in other.seconds.items():
            seconds[cause] += amount
        return replace(self, seconds=dict(seconds), owners=added_owners(self.owners, other.owners), changed=True)

    def settled(self) -> PoolCount:
        """The final totals, without the surplus."""
        seconds, _ = less_surplus(self.seconds, self.surplus)
        worked, left = self.seconds.get(Cause.WORKING, 0.0), seconds.get(Cause.WORKING, 0.0)
        owners = {owner: amount * (left / worked if worked else 1.0) for owner, amount in self.owners.items()}
        return replace(self, seconds=seconds, owners=owners, surplus=0.0)


def less_surplus(seconds: Seconds, surplus: float) -> tuple[dict[Cause, float], float]:
    """`seconds` without a surplus, and how much of that is left; work, which was measured, is the last to lose any."""
    found = dict(seconds)
    for cause in sorted(found, key=lambda each: each is Cause.WORKING):
        taken = min(found[cause], surplus)
        found[cause] -= taken
        surplus -= taken
    return found, surplus


def added_owners(before: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """The sums; those of owners beyond the first ones are under an empty name."""
    owners = defaultdict(float, before)
    for owner, amount in more.items():
        has_room = len(owners) - ("" in owners) < OWNERS
        owners[owner if owner in owners or has_room else ""] += amount
    return dict(owners)
