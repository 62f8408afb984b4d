"""The state of a GpuDaskJob, read from what the API server has of it: total, whatever stands there. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api import Json
from gpudask.cli.untrusted import field, lines, objects, text, whole

_COMPLETE, _FAILED = "Complete", "Failed"  # conditions
_MOST_ATTEMPTS = 1000
_MOST_CODE = 255


@dataclass(frozen=True)
class State:
    """The state of a job.

    Attributes:
        attempts: the runners that were begun.
        has_ended: whether it ended, for good.
        exit_code: what the command line ends with then: the runner's exit code, which is 128 and the signal's number
            where one ended it; 1 where it never ran or is not known.
        message: why it failed; empty where it did not.
        why: what it waits for now; empty where its status does not say.
        pod: the name of the last runner's pod, whose last lines `last_lines` are.
    """

    attempts: int
    has_ended: bool
    exit_code: int
    message: str
    why: str
    pod: str
    last_lines: str


def read(body: Json) -> State:
    """The state that `body` tells."""
    failure = _condition(body, _FAILED)
    is_complete = _condition(body, _COMPLETE) is not None
    return State(
        attempts=max(0, min(whole(body, "status", "attempts"), _MOST_ATTEMPTS)),
        has_ended=is_complete or failure is not None,
        exit_code=0 if is_complete else _failure_code(whole(body, "status", "runner", "exitCode")),
        message="" if failure is None or is_complete else _told(failure),
        why=_told(field(body, "status")),
        pod=text(body, "status", "runner", "pod", length=253),
        last_lines=lines(body, "status", "runner", "lastLines"),
    )


def _condition(body: Json, kind: str) -> Json | None:
    found = objects(body, "status", "conditions", most=100)
    return next((item for item in found if item.get("type") == kind and item.get("status") == "True"), None)


def _failure_code(code: int) -> int:
    return code if 0 < code <= _MOST_CODE else 1


def _told(item: object) -> str:
    """The reason and the message of a condition or of a status."""
    reason, message = text(item, "reason"), text(item, "message", length=1000)
    return ": ".join(part for part in (reason, message) if part)
