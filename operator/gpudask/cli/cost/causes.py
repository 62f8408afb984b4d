"""The causes of the ledger in words for people: why a GPU was held at a moment, and what shortens that time."""

from __future__ import annotations

from dataclasses import dataclass

WORKING = "working"
UNKNOWN = "unknown"
"""Of an operator that counts what worked, and no causes."""


@dataclass(frozen=True)
class Cause:
    """One cause: `words` after a number of GPUs, `meaning` as a sentence, `advice` how to have less of it."""

    words: str
    meaning: str
    advice: str = ""


# In the ledger's order: where several would do, the first is the cause.
CAUSES = {
    WORKING: Cause("working", "A task that only this pool serves ran on it."),
    "unhealthy": Cause(
        "unhealthy",
        "The device failed, or its worker crashed or vanished.",
        "Look at the pods that ended, and have the node's GPU examined.",
    ),
    "starting": Cause(
        "starting",
        "The pod had a node, and its workers were not registered yet.",
        "Make the image smaller or have it on the nodes, and shorten what is imported at the start.",
    ),
    "draining": Cause(
        "draining",
        "The pod was leaving: it moved its results, or was being deleted.",
        "Fetch or release results early, so that less has to be moved.",
    ),
    "frozen": Cause(
        "frozen",
        "The pool could not follow its demand: the scheduler was silent, or the size was frozen.",
        "The condition Degraded says why; see that the scheduler answers.",
    ),
    "heldResult": Cause(
        "kept by a result",
        "It was idle past the timeout, and a result, an actor or a shuffle on it kept it.",
        "Release futures that nobody needs, or gather them to the CPU.",
    ),
    "heldByUser": Cause(
        "kept by somebody",
        "A hold, an override or a fixed number of replicas kept it.",
        "Give holds an end, and pools an autoscale instead of replicas.",
    ),
    "spare": Cause("spare", "It was within the pool's min.", "Lower autoscale.min where the first task may wait."),
    "waitingIdleTimeout": Cause(
        "in the idle timeout",
        "It had nothing to do, and the idle timeout had not passed.",
        "Shorten autoscale.idleTimeout, where pods start quickly.",
    ),
    UNKNOWN: Cause("not told", "The operator was older than the ledger: it counted what worked, and no causes."),
}


def words(cause: str) -> str:
    """The words for a cause; a newer operator's own name for one that is not known here."""
    return CAUSES[cause].words if cause in CAUSES else cause


def rank(cause: str) -> int:
    """The place of a cause in the ledger's order; what is not known comes last."""
    return list(CAUSES).index(cause) if cause in CAUSES else len(CAUSES)
