"""The stock operator's objects in a test's namespace: how they go, whatever holds them, and how they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gpudask.api import Json
from tests.eventually import eventually
from tests.kubectl import Kubectl

if TYPE_CHECKING:
    from tests.e2e.space import Space

KINDS = "daskjobs,daskclusters,daskworkergroups,daskautoscalers"
_FINALIZERS = "kopf.zalando.org/"
_LINES, _LOG_SHOWN = 60, 10_000  # of a pod's log; characters of a file


def remove(kubectl: Kubectl, *, seconds: float = 120) -> None:
    """Delete all of them in its namespace, and take off what the stock operator holds them by: it has ended.

    Raises:
        AssertionError: some are left after so many seconds, with what they are.
    """
    kubectl.attempt("delete", KINDS, "--all", "--wait=false")

    def gone() -> bool:
        left = _all(kubectl)
        for body in left:
            _release(kubectl, body)
        return not left

    what = "the stock operator's objects are gone"
    eventually(gone, what, seconds=seconds, show=lambda: [body["metadata"] for body in _all(kubectl)])


def show(space: Space, log: Path) -> str:
    """What there is, for a person who looks into a failure. `log`: the stock operator's, whose end is shown."""
    statuses = [
        f"{body['kind']} {body['metadata']['name']}: finalizers {body['metadata'].get('finalizers')},"
        f" status {json.dumps(body.get('status'))}"
        for body in _all(space.kubectl)
    ]
    pods = space.kubectl.attempt("get", "pods", "-o", "json")
    found = json.loads(pods.stdout)["items"] if pods.returncode == 0 else []
    parts = [
        space.show(),
        *statuses,
        *map(_containers, found),
        space.kubectl.attempt("get", "deployments,replicasets,services", "-o", "wide").stdout,
        space.kubectl.attempt("get", "events", "--sort-by=.metadata.creationTimestamp").stdout,
        *(_log_of(space, body["metadata"]["name"]) for body in found),
        f"The end of the stock operator's log:\n{_end_of(log)}",
        f"The end of our operator's log:\n{space.platform.operator_log()}",
    ]
    return "\n".join(parts)


def _all(kubectl: Kubectl) -> list[Json]:
    """All of them; none where the API server does not know their kinds."""
    listed = kubectl.attempt("get", KINDS, "-o", "json")
    return list(json.loads(listed.stdout)["items"]) if listed.returncode == 0 else []


def _release(kubectl: Kubectl, body: Json) -> None:
    held = body["metadata"].get("finalizers", [])
    kept = [name for name in held if not name.startswith(_FINALIZERS)]
    if kept == held:
        return
    patch = {"metadata": {"finalizers": kept or None}}
    named = f"{body['kind'].lower()}/{body['metadata']['name']}"
    kubectl.attempt("patch", named, "--type=merge", "-p", json.dumps(patch))  # it may be gone


def _containers(pod: Json) -> str:
    """A pod's phase, and the state of each of its containers: why one waits, or how it ended last."""
    states = [
        f"{status['name']}: {json.dumps(status['state'])}, before: {json.dumps(status.get('lastState'))}"
        for status in pod["status"].get("containerStatuses", ())
    ]
    return f"Pod {pod['metadata']['name']}: {pod['status'].get('phase')} {'; '.join(states)}"


def _log_of(space: Space, pod: str) -> str:
    done = space.kubectl.attempt("logs", pod, f"--tail={_LINES}", "--all-containers")
    return f"The end of the log of {pod}:\n{done.stdout}{done.stderr}"


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-_LOG_SHOWN:] if log.exists() else "(it has not begun)"
