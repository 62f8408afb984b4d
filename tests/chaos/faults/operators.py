"""Operators that end without a word, are deleted, stop for a while, or lose the Lease."""

from __future__ import annotations

from gpudask.api.json_object import Json

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from local.operator_release import NAMESPACE
from tests.chaos import processes
from tests.chaos.stage import NoVictimError, Stage


@contextmanager
def killed(stage: Stage, _pick: float) -> Iterator[str]:
    """SIGKILL to the leader."""
    with _killed(stage, [stage.leader()]) as told:
        yield told


@contextmanager
def all_killed(stage: Stage, _pick: float) -> Iterator[str]:
    """SIGKILL to all."""
    with _killed(stage, stage.operators()) as told:
        yield told


@contextmanager
def deleted(stage: Stage, _pick: float) -> Iterator[str]:
    """The leader's pod is deleted: it gives the Lease back."""
    leader = stage.leader()
    stage.remove([leader], NAMESPACE)
    yield _names([leader])


@contextmanager
def all_deleted(stage: Stage, _pick: float) -> Iterator[str]:
    """All operators' pods are deleted."""
    pods = stage.operators()
    if not pods:
        raise NoVictimError("no operator runs")
    stage.remove(pods, NAMESPACE)
    yield _names(pods)


@contextmanager
def frozen(stage: Stage, _pick: float) -> Iterator[str]:
    """SIGSTOP to the leader, which then goes on as if nothing had been."""
    leader = stage.leader()
    with processes.frozen(processes.of_container(leader)):
        yield _names([leader])


@contextmanager
def leader_changed(stage: Stage, _pick: float) -> Iterator[str]:
    """The Lease names somebody who is not there: the leader steps down, and one of them takes it when it runs out."""
    leader = stage.leader()
    patch = {"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 3}}
    operators = stage.platform.kubectl.inside(NAMESPACE)
    operators("patch", "lease", "gpudask", "--type=merge", "-p", json.dumps(patch), "--request-timeout=15s")
    yield _names([leader])


@contextmanager
def _killed(stage: Stage, pods: list[Json]) -> Iterator[str]:
    if not pods:
        raise NoVictimError("no operator runs")
    for pod in pods:
        processes.send(processes.of_container(pod), signal.SIGKILL)
    try:
        yield _names(pods)
    finally:
        stage.undo("an operator's end", lambda: _replace_waiting(stage))


def _replace_waiting(stage: Stage) -> None:
    """Delete those whose kubelet waits, up to five minutes, before it starts them again."""
    waiting = [pod for pod in stage.pods("app.kubernetes.io/name=gpudask", NAMESPACE) if not _runs(pod)]
    if waiting:
        stage.remove(waiting, NAMESPACE, grace_seconds=1)


def _runs(pod: Json) -> bool:
    return all("running" in status["state"] for status in pod["status"].get("containerStatuses", ()))


def _names(pods: list[Json]) -> str:
    return ", ".join(pod["metadata"]["name"] for pod in pods)
