"""Ends of a cluster's pods that held GPUs: those since the last count, and those of the last while, once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gpudask.planning.ledger.causes import Gone, ended_for_good
from gpudask.planning.observed.pods import Pod

# For so long an end is remembered that was counted: another operator, whose count may be adopted, had not heard of it.
_KEPT_SECONDS = 60.0
_KEPT = 1000  # of them, the last ones


class PodEnds:
    """The ends, by the operator's clock. Times are seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._new: list[Gone] = []  # since the last count
        self._counted: list[Gone] = []

    def note(self, pod: Pod, at: float) -> None:
        """Note that a pod is gone since `at`, as it was last seen."""
        if pod.pool and pod.node:
            self._new.append(Gone.of(pod, at))

    def take(self, pods: Iterable[Pod], there: Collection[str]) -> tuple[Gone, ...]:
        """The pods that held GPUs, and do not since the last count.

        `there`: the uids of those that exist. Those of `pods` that went only after that, as in a long write, are for
        the next count; but some are back by now.
        """
        later = {pod.uid for pod in pods} - set(there)
        taken = [each for each in self._new if each.uid not in later]
        self._new = [each for each in self._new if each.uid in later]
        since = self._clock() - _KEPT_SECONDS
        self._counted = [each for each in (*self._counted, *taken) if each.at >= since][-_KEPT:]
        return (*taken, *ended_for_good(pods))

    def take_back(self) -> None:
        """Have the next count learn of the last ones once more: it goes on from what another operator counted."""
        self._new, self._counted = [*self._counted, *self._new], []
