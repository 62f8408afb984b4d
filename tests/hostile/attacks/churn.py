"""Much of everything, and quickly: clusters that come and go, are edited without end, or are too many."""

from __future__ import annotations

import asyncio
import itertools

from gpudask.api.resource import PLURAL
from tests.builders import a_pool
from tests.hostile.attack import OWN, Attack, Attacker, create, delete, merge
from tests.hostile.attacks.objects import cluster
from tests.hostile.attacks.specs import HEAVY

_AT_ONCE = 16
_MANY, _FEW = 1_000, 100


async def _coming_and_going(attacker: Attacker) -> None:
    """A cluster is made and deleted, ten times a second, under the same few names."""
    for number in itertools.count():
        name = f"brief-{number % 4}"
        await attacker.send(create(PLURAL, cluster(name)))
        await asyncio.sleep(0.05)
        await attacker.send(delete(PLURAL, name))
        await asyncio.sleep(0.05)


async def _editing(attacker: Attacker) -> None:
    """A spec is edited twenty times a second, so that every pod is out of date."""
    for number in itertools.count():
        await attacker.send(merge(PLURAL, "edited", {"spec": {"env": [{"name": "X", "value": str(number)}]}}))
        await asyncio.sleep(0.05)


async def _resizing(attacker: Attacker) -> None:
    """A pool wants a hundred pods, then none, and so on."""
    for size in itertools.cycle((100, 0)):
        await attacker.send(merge(PLURAL, "resized", {"spec": {"pools": [a_pool(replicas=size)]}}))
        await asyncio.sleep(0.3)


async def _suspending(attacker: Attacker) -> None:
    for suspended in itertools.cycle((True, False)):
        await attacker.send(merge(PLURAL, "suspended", {"spec": {"suspend": suspended}}))
        await asyncio.sleep(0.1)


async def _annotating(attacker: Attacker) -> None:
    """The metadata of a large cluster change fifty times a second."""
    for number in itertools.count():
        await attacker.send(merge(PLURAL, "padded", {"metadata": {"annotations": {"x": str(number)}}}))
        await asyncio.sleep(0.02)


async def _making(attacker: Attacker, count: int) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def make(number: int) -> None:
        async with turns:
            await attacker.send(create(PLURAL, cluster(f"many-{number}", a_pool(replicas=1))))

    await asyncio.gather(*(make(number) for number in range(count)))


async def _making_many(attacker: Attacker) -> None:
    await _making(attacker, _MANY)


async def _making_some(attacker: Attacker) -> None:
    await _making(attacker, _FEW)


_PADDING = {f"p{n}": "y" * 10_000 for n in range(24)}
_HELD = {"finalizers": ["hostile.example/held"]}
ATTACKS = (
    Attack("clusters that come and go", "churn", acts=_coming_and_going, seconds=3),
    Attack("a spec edited twenty times a second", "churn", (create(PLURAL, cluster("edited")),), _editing, seconds=3),
    Attack("a pool of a hundred pods, and none", "churn", (create(PLURAL, cluster("resized")),), _resizing, seconds=3),
    Attack("a cluster suspended, and not", "churn", (create(PLURAL, cluster("suspended")),), _suspending, seconds=3),
    Attack(
        "a large cluster annotated fifty times a second",
        "churn",
        (create(PLURAL, cluster("padded", metadata={"annotations": _PADDING})),),
        _annotating,
        seconds=3,
    ),
    Attack(
        "clusters that a finalizer keeps",
        "churn",
        tuple(
            request
            for n in range(10)
            for request in (create(PLURAL, cluster(f"kept-{n}", metadata=_HELD)), delete(PLURAL, f"kept-{n}"))
        ),
    ),
    Attack("its own cluster deleted", "churn", (delete(PLURAL, OWN),)),
    Attack("a hundred clusters", "churn", acts=_making_some, seconds=3),
    *HEAVY,
    Attack("a thousand clusters", "heavy churn", acts=_making_many, seconds=10, heavy=True),
)
