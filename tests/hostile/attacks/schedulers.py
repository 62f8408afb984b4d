"""Schedulers that answer whatever they like, at any pace: each of a cluster of the attackers'."""

from __future__ import annotations

from gpudask.api.resource import PLURAL
from tests.builders import a_pool
from tests.hostile.attack import Attack, create
from tests.hostile.attacks.objects import cluster
from tests.hostile.impostor import ANSWERS, SILENT
from tests.planning.builders import gpu_pool


def _attack(answers: str) -> Attack:
    name = f"s-{answers}"
    body = cluster(name, a_pool(replicas=1), gpu_pool(most=3))
    return Attack(
        f"a scheduler: {answers}", "schedulers", (create(PLURAL, body),), schedulers={name: answers}, seconds=3
    )


_CROWD = [f"crowd-{n}" for n in range(100)]
ATTACKS = (
    *(_attack(answers) for answers in (*ANSWERS, SILENT)),
    Attack(
        "a hundred schedulers with ever new versions",
        "heavy schedulers",
        tuple(create(PLURAL, cluster(name, a_pool(replicas=0))) for name in _CROWD),
        schedulers=dict.fromkeys(_CROWD, "flapping"),
        seconds=20,
        heavy=True,
    ),
)
