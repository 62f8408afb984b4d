"""Operators that end without a word, are deleted, stop for a while, or lose the Lease."""

from __future__ import annotations

from gpudask.api import Json

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from local.operator.release import NAMESPACE
from tests.chaos import processes
from tests.chaos.target import NoVictimError, Target


@contextmanager
def killed(target: Target, _pick: float) -> Iterator[str]:
    """SIGKILL to the leader."""
    with _killed(target, [target.leader()]) as told:
        yield told


@contextmanager
def all_killed(target: Target, _pick: float) -> Iterator[str]:
    """SIGKILL to all."""
    with _killed(target, target.operators()) as told:
        yield told


@contextmanager
def deleted(target: Target, _pick: float) -> Iterator[str]:
    """The leader's pod is deleted: it gives the Lease back."""
    leader = target.leader()
    target.remove([leader], NAMESPACE)
    yield _names([leader])


@contextmanager
def all_deleted(target: Target, _pick: float) -> Iterator[str]:
    """All operators' pods are deleted."""
    pods = target.operators()
    if not pods:
        raise NoVictimError("no operator runs")
    target.remove(pods, NAMESPACE)
    yield _names(pods)


@contextmanager
def frozen(target: Target, _pick: float) -> Iterator[str]:
    """SIGSTOP to the leader, which then goes on as if nothing had been."""
    leader = target.leader()
    with processes.frozen(processes.of_container(leader)):
        yield _names([leader])


@contextmanager
def leader_changed(target: Target, _pick: float) -> Iterator[str]:
    """The Lease names somebody who is not there: the leader steps down, and one of them takes it when it runs out."""
    leader = target.leader()
    patch = {"spec": {"holderIdentity": "nobody", "leaseDurationSeconds": 3}}
    operators = target.platform.kubectl.inside(NAMESPACE)
    operators("patch", "lease", "gpudask", "--type=merge", "-p", json.dumps(patch), "--request-timeout=15s")
    yield _names([leader])


@contextmanager
def _killed(target: Target, pods: list[Json]) -> Iterator[str]:
    if not pods:
        raise NoVictimError("no operator runs")
    for pod in pods:
        processes.send(processes.of_container(pod), signal.SIGKILL)
    try:
        yield _names(pods)
    finally:
        target.undo("an operator's end", lambda: _replace_waiting(target))


def _replace_waiting(target: Target) -> None:
    """Delete those whose kubelet waits, up to five minutes, before it starts them again."""
    waiting = [pod for pod in target.pods("app.kubernetes.io/name=gpudask", NAMESPACE) if not _runs(pod)]
    if waiting:
        target.remove(waiting, NAMESPACE, grace_seconds=1)


def _runs(pod: Json) -> bool:
    return all("running" in status["state"] for status in pod["status"].get("containerStatuses", ()))


def _names(pods: list[Json]) -> str:
    return ", ".join(pod["metadata"]["name"] for pod in pods)
