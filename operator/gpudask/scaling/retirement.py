"""The choice of pods to retire when a pool has too many: whole pods, and never one whose work would be cut."""

from __future__ import annotations

from dataclasses import dataclass

SAME_IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that could leave.

    `pending`: no worker of it ever ran, so it can be cancelled. `idle_seconds`: how long all of its workers have
    had no work of their pool's own, 0.0 where one has. `blockers`: what it could not leave behind. `node`: where it
    is, with `neighbours` pods of the cluster, itself included.
    """

    pod: str
    number: int
    pending: bool = False
    idle_seconds: float = 0.0
    busy: bool = False
    held_bytes: int = 0
    blockers: tuple[str, ...] = ()
    node: str = ""
    neighbours: int = 0


def order(candidate: Candidate) -> tuple[bool, bool, int, bool, int, str, float, int, int]:
    """Sort key: pending first, then idle longest, then without data, then whose node is emptied soonest.

    Idle times that differ by less than a few seconds are the same: pods that fell idle with one batch of tasks. Only
    among equals it matters where they are; a node that is empty can be given back.
    """
    return (
        not candidate.pending,
        candidate.busy,
        -int(candidate.idle_seconds // SAME_IDLE_SECONDS),
        candidate.held_bytes > 0,
        candidate.neighbours,
        candidate.node,
        -candidate.idle_seconds,
        candidate.held_bytes,
        -candidate.number,
    )


def surplus(candidates: list[Candidate], count: int) -> list[Candidate]:
    """The `count` pods to retire when a person asked for fewer: busy ones last; they are drained, too."""
    return sorted(candidates, key=order)[: max(0, count)]


def pending(candidates: list[Candidate], count: int) -> list[Candidate]:
    """At most `count` of those that never ran, to be cancelled at once: no demand is left that could fill them."""
    return sorted((c for c in candidates if c.pending), key=order)[: max(0, count)]


def idle(
    candidates: list[Candidate], count: int, *, timeout_seconds: float, release_after_seconds: float | None
) -> list[Candidate]:
    """At most `count` running ones that demand does not need, once they are idle for the timeout.

    A pod with a blocker stays. Held data that has nowhere to go is released after `release_after_seconds`, if set.
    """
    return sorted(
        (c for c in candidates if not c.pending and _may_leave(c, timeout_seconds, release_after_seconds)), key=order
    )[: max(0, count)]


def in_turn(leaving: list[Candidate], *, of: int, others_leave: bool) -> list[Candidate]:
    """Those of `leaving` that may begin now, where the pool has `of` pods that stay so far.

    When all would leave and they hold data, the one with the most waits for the others: closed all at once, none could
    take what only this pool's workers can hold, and each would keep its GPUs.
    """
    holds = others_leave or any(candidate.held_bytes for candidate in leaving)
    if not leaving or len(leaving) < of or not holds:
        return leaving
    if len(leaving) == 1:
        return [] if others_leave else leaving
    last = max(leaving, key=lambda candidate: candidate.held_bytes)
    return [candidate for candidate in leaving if candidate is not last]


def releases(candidate: Candidate, release_after_seconds: float | None) -> bool:
    """True if the data that `candidate` holds may be released by now."""
    return (
        "data" in candidate.blockers
        and release_after_seconds is not None
        and candidate.idle_seconds >= release_after_seconds
    )


def keeps(candidate: Candidate, release_after_seconds: float | None) -> list[str]:
    """The blockers for which `candidate` stays though it is idle for long enough."""
    return [b for b in candidate.blockers if not (b == "data" and releases(candidate, release_after_seconds))]


def _may_leave(candidate: Candidate, timeout_seconds: float, release_after_seconds: float | None) -> bool:
    if candidate.busy or candidate.idle_seconds < timeout_seconds:
        return False
    return not keeps(candidate, release_after_seconds)
