"""Objects that have the names which the operator is about to use."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from functools import partial

from gpudask.api.resource import PLURAL
from gpudask.desired import names, preload
from gpudask.preload import files
from tests.hostile.attack import Attack, Attacker, create, delete, read
from tests.hostile.attacks.objects import cluster, plain, pod

_DATA = {"x": "mallory-was-here"}


def _before(name: str, late: str, plural: str, *bodies: Json, group: str = "") -> Attack:
    """The objects are there before the cluster `late` comes, which needs their names."""
    there = tuple(create(plural, body, group=group) for body in bodies)
    return Attack(name, "names", (*there, create(PLURAL, cluster(late))))


async def _taking_scheduler_names(attacker: Attacker) -> None:
    """The names of the next forty scheduler pods are taken, and the scheduler is deleted."""
    body = await attacker.send(create(PLURAL, cluster("taken")))
    assert body is not None, attacker.said
    uid, taken = body["metadata"]["uid"], frozenset[str]()
    while True:
        for _ in range(40):
            name = names.scheduler_pod("taken", uid, taken)
            taken |= {name}
            await attacker.send(create("pods", pod(name, spec={"nodeName": "node-1"})))
        for pod_of in ((await attacker.send(read("pods"))) or {}).get("items", ()):
            if pod_of["metadata"].get("ownerReferences", [{}])[0].get("uid") == uid:
                await attacker.send(delete("pods", pod_of["metadata"]["name"]))
        await asyncio.sleep(1)


async def _replacing_the_preload(body: Json, attacker: Attacker) -> None:
    """Put another object in its place until the operator repairs it only now and then: it starves its namespace."""
    for _ in range(4):
        await attacker.send(delete("configmaps", _PRELOAD))
        await attacker.send(create("configmaps", body))
        await asyncio.sleep(0.3)
    await attacker.send(delete("configmaps", _PRELOAD))


_PRELOAD = preload.name(files())
_LABELS = {"gpudask.dev/preload": "shared"}
_PASS_FOR_PRELOADS = [
    plain("ConfigMap", f"{preload.PREFIX}{n:032}", metadata={"labels": _LABELS}, data=_DATA, immutable=True)
    for n in range(100)
]
_HEADLESS = {"clusterIP": "None", "ports": [{"port": 1}]}
_OUTSIDE = {"type": "ExternalName", "externalName": "example.com"}
ATTACKS = (
    _before(
        "a hundred worker names", "late-workers", "pods", *(pod(f"late-workers-cpu-worker-{n}") for n in range(100))
    ),
    _before(
        "a headless Service in the scheduler's place",
        "late-a",
        "services",
        plain("Service", "late-a-scheduler", spec=_HEADLESS),
    ),
    _before("a Service that leads outside", "late-b", "services", plain("Service", "late-b-scheduler", spec=_OUTSIDE)),
    Attack(
        "the preload's ConfigMap, for ever",
        "names",
        (create(PLURAL, cluster("late-c")),),
        partial(_replacing_the_preload, plain("ConfigMap", _PRELOAD, data=_DATA, immutable=True)),
        seconds=3,
        starves_itself=True,
    ),
    Attack(
        "the preload's ConfigMap, with the operator's label",
        "names",
        (*(create("configmaps", body) for body in _PASS_FOR_PRELOADS), create(PLURAL, cluster("late-d"))),
        partial(_replacing_the_preload, plain("ConfigMap", _PRELOAD, metadata={"labels": _LABELS}, data=_DATA)),
        seconds=3,
        starves_itself=True,
    ),
    _before(
        "the token's Secret, of another type",
        "late-e",
        "secrets",
        plain("Secret", names.token("late-e"), type="hostile.example/x", stringData=_DATA, immutable=True),
    ),
    _before(
        "the budget, of others",
        "late-f",
        "poddisruptionbudgets",
        plain("PodDisruptionBudget", "late-f-scheduler", "policy/v1", spec={"maxUnavailable": 0, "selector": {}}),
        plain("PodDisruptionBudget", "late-f", "policy/v1", spec={"maxUnavailable": 0, "selector": {}}),
        group="policy/v1",
    ),
    _before(
        "a worker's name held by a finalizer",
        "late-g",
        "pods",
        pod("late-g-cpu-worker-0", finalizers=["hostile.example/held"]),
    ),
    Attack(
        "clusters whose names meet",
        "names",
        tuple(create(PLURAL, cluster(name)) for name in ("own-cpu", "own-cpu-worker", "own-scheduler", "a", "a-b")),
    ),
    Attack(
        "clusters that are called as the victim's",
        "names",
        tuple(create(PLURAL, cluster(name)) for name in ("keeper", "round-1", "round-5", "round-9")),
    ),
    Attack("the names of all next schedulers", "names", acts=_taking_scheduler_names, seconds=2),
)
