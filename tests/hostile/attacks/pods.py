"""Pods that lie in their status, as far as a container has a say in it, or that are meddled with while they run."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import itertools
import json
from typing import Any

from tests.hostile.attack import MARK, Attack, Attacker, create, delete, merge, read
from tests.hostile.attacks.objects import cluster, pod, worker
from tests.hostile.node import STATUS
from gpudask.api.resource import ANNOTATION_RETIRE, LABEL_CLUSTER, PLURAL

_FORGED = f"{MARK}\n[2026-01-01 00:00:00,000] gpudask [ERROR] forged\x1b[31m"
_WORKERS = [f"own-cpu-worker-{n}" for n in range(3)]


def _ended(message: str, **fields: Any) -> Json:
    """A container that ended and is started again: its message is the program's own, up to 4 kB."""
    ended = {"exitCode": 1, "reason": "Error", "message": message, "finishedAt": "2026-01-01T00:00:00Z", **fields}
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    known = {"name": "dask", "ready": False, "restartCount": 9, "image": "i", "imageID": "i"}
    return {"containerStatuses": [known | {"state": waits, "lastState": {"terminated": ended}}]}


def _says(name: str, slug: str, status: Json, **fields: Any) -> Attack:
    """A worker of the attackers' own cluster whose status is this, and a pod of nobody's with the same."""
    annotations = {STATUS: json.dumps(status)}
    bodies = (worker(f"own-{slug}", annotations=annotations, **fields), pod(f"free-{slug}", annotations=annotations))
    return Attack(name, "pods", tuple(create("pods", body) for body in bodies))


def _failed(number: int) -> Json:
    return {"phase": "Failed", "reason": "Evicted", "message": f"The node {_FORGED * 20} {number}"}


async def _deleting_workers(attacker: Attacker) -> None:
    """Every worker is deleted as soon as it is there."""
    for name in itertools.cycle(_WORKERS):
        await attacker.send(delete("pods", name))
        await asyncio.sleep(0.1)


async def _retiring_workers(attacker: Attacker) -> None:
    """Each worker is asked to leave, then not, then so in other words."""
    for text in itertools.cycle(("x", None, json.dumps({"why": MARK, "ifIdle": True, "release": True, "at": 1}))):
        for name in _WORKERS[:1]:
            await attacker.send(merge("pods", name, {"metadata": {"annotations": {ANNOTATION_RETIRE: text}}}))
        await asyncio.sleep(0.1)


async def _touching(attacker: Attacker) -> None:
    """A pod is changed fifty times a second."""
    for number in itertools.count():
        await attacker.send(merge("pods", "own-touched", {"metadata": {"annotations": {"x": str(number)}}}))
        await asyncio.sleep(0.02)


async def _holding(attacker: Attacker) -> None:
    """A finalizer is put on every pod of a cluster, and each is deleted."""
    held = {"metadata": {"finalizers": ["hostile.example/held"]}}
    while True:
        found = await attacker.send(read("pods"))
        for item in (found or {}).get("items", ()):
            name, labels = item["metadata"]["name"], item["metadata"].get("labels", {})
            if labels.get(LABEL_CLUSTER) == "held" and "deletionTimestamp" not in item["metadata"]:
                await attacker.send(merge("pods", name, held))
                await attacker.send(delete("pods", name))
        await asyncio.sleep(0.2)


ATTACKS = (
    _says("a container's last words forge the log", "forges", _ended(_FORGED * 20)),
    _says("a container ended at the end of time", "endless", _ended("x", finishedAt="9999-12-31T23:59:59Z")),
    _says("a container ended before all time", "ancient", _ended("x", finishedAt="0001-01-01T00:00:00Z")),
    _says("a container with a reason of 4 kB", "reason", _ended("x", reason="R" * 4_000, exitCode=2**31 - 1)),
    _says("two thousand million restarts", "restarts", _ended("x") | {"message": MARK}),
    _says("a pod that the node evicted", "evicted", _failed(1)),
    _says("an address that is none", "address", {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}),
    _says("a pod that succeeded", "succeeded", {"phase": "Succeeded", "reason": MARK, "message": _FORGED}),
    Attack("every worker is deleted at once", "pods", acts=_deleting_workers),
    Attack("every worker is asked to leave, and not", "pods", acts=_retiring_workers),
    Attack("a pod that changes fifty times a second", "pods", (create("pods", worker("own-touched")),), _touching),
    Attack("a finalizer on every pod of a cluster", "pods", (create(PLURAL, cluster("held")),), _holding, seconds=2),
    Attack(
        "thirty pods that end at once",
        "pods",
        tuple(create("pods", worker(f"own-ends-{n}", annotations={STATUS: json.dumps(_failed(n))})) for n in range(30)),
    ),
    Attack(
        "labels at their limit",
        "pods",
        (create("pods", pod("labels", labels={f"l{n}": "x" * 63 for n in range(900)})),),
    ),
)
