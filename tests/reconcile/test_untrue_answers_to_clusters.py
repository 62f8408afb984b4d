"""An answer that is not true, once for each kind of write for clusters: it is tried again, though nothing has changed.

No watch event comes that would have it tried again, and the slow resync is too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.resource import LABEL_PRELOAD
from gpudask.desired import network, preload
from tests.builders import a_manifest, a_pool
from tests.clients.fake_api_server import BUSY, UNTRUE, Answer, FakeApiServer, refusal
from tests.planning.builders import cluster, stored
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

SECONDS = 90.0  # the resync, which finds everything, comes after 600
# Until then the API server is busy: all else has been written, so that nothing but the answer can cause another try.
REST_SECONDS = 5.0
TYPO = refusal(422, 'unknown field "spec.x"', "Invalid")
THIS, LATER = {"gpudask_entry.py": b"this"}, {"gpudask_entry.py": b"later"}
NAME = preload.name(THIS)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps/"
OWN = "one-gpudask-preload-0123abcd"
POOL = a_pool("cpu", replicas=1)
Look = Callable[[], Any]


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Back-offs pass at once."""
    return VirtualPolicy()


async def nothing(_: FakeApiServer) -> None:
    """Nothing is there before."""


@dataclass(frozen=True)
class Write:
    """The request that gets the answer, by its method, a part of its path, and of the name; and what causes it.

    `act` has it written, and gives what becomes true by that. `before`: what is there. `context`: of the operator.
    """

    method: str
    path: str
    name: str
    act: Callable[[Operated], Awaitable[Look]]
    before: Callable[[FakeApiServer], Awaitable[None]] = nothing
    context: Json = field(default_factory=dict)


def users(on: Operated) -> list[str]:
    """The clusters that the shared ConfigMap names as its owners."""
    body = on.server.objects.get(CONFIG_MAPS + NAME) or {"metadata": {}}
    return sorted(item["name"] for item in body["metadata"].get("ownerReferences", ()))


def made(plural: str, name: str) -> Callable[[Operated], Awaitable[Look]]:
    """A cluster is made, and an object for it."""

    async def act(on: Operated) -> Look:
        on.apply(POOL)
        return lambda: any(name in each for each in on.server.names(plural))

    return act


async def dry_run(on: Operated) -> Look:
    on.server.fail("POST", "/pods", TYPO, name="idle")
    on.apply(a_pool("idle", replicas=0))
    return lambda: "unknown field" in on.condition("Degraded")


async def status(on: Operated) -> Look:
    on.apply(POOL)
    return lambda: not on.condition("Ready").startswith("None")


async def fewer_workers(on: Operated) -> Look:
    on.apply(POOL)
    await becomes(lambda: len(on.pods()), 2)
    (path,) = (path for path in on.server.objects if "/gpudaskclusters/" in path)
    edited = a_manifest(POOL | {"replicas": 0})["spec"]
    there = on.server.objects[path]
    metadata = there["metadata"] | {"generation": 2}
    on.loop().resource_changed(on.server.put(path, there | {"metadata": metadata, "spec": edited}))
    return lambda: not any("-worker-" in name for name in on.pods())


async def another_user(on: Operated) -> Look:
    on.take_over()
    on.apply(POOL, name="two")
    return lambda: users(on) == ["one", "two"]


async def reference_is_back(on: Operated) -> Look:
    on.take_over()
    return lambda: users(on) == ["one"]


def new_scheduler(look: Callable[[Operated], bool]) -> Callable[[Operated], Awaitable[Look]]:
    """The scheduler of cluster one is replaced by one of another version."""

    async def act(on: Operated) -> Look:
        on.take_over()
        await asyncio.sleep(1)
        on.lose(next(name for name in on.pods() if name.startswith("one-scheduler-")))
        return lambda: look(on)

    return act


async def valid_contents(on: Operated) -> Look:
    on.fill_caches()
    on.apply(POOL)
    return lambda: users(on) == ["demo"] and any("-scheduler-" in name for name in on.pods())


async def policy_goes(on: Operated) -> Look:
    on.take_over()
    return lambda: not on.server.names("networkpolicies")


def earlier(*names: str) -> Callable[[FakeApiServer], Awaitable[None]]:
    """What an operator of another version made."""

    async def before(server: FakeApiServer) -> None:
        async with operated(server, preload=THIS) as on:
            for name in names:
                on.apply(POOL, name=name)
            await becomes(lambda: len(on.pods()), 2 * len(names))
            await becomes(lambda: users(on), sorted(names))
            await asyncio.sleep(5)

    return before


async def lost_reference(server: FakeApiServer) -> None:
    await earlier("one")(server)
    there = server.objects[CONFIG_MAPS + NAME]
    server.put(CONFIG_MAPS + NAME, there | {"metadata": there["metadata"] | {"ownerReferences": []}})


async def wrong_contents(server: FakeApiServer) -> None:
    metadata = {"name": NAME, "namespace": "default", "labels": {LABEL_PRELOAD: "shared"}}
    server.put(CONFIG_MAPS + NAME, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})


async def one_of_its_own(server: FakeApiServer) -> None:
    await earlier("one")(server)
    pod = next(body for path, body in server.objects.items() if "/pods/one-scheduler" in path)
    metadata = {"name": OWN, "namespace": "default", "labels": pod["metadata"]["labels"]}
    references = {"ownerReferences": pod["metadata"]["ownerReferences"]}
    server.put(CONFIG_MAPS + OWN, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | references})


async def own_one_goes(on: Operated) -> Look:
    on.take_over()
    return lambda: OWN not in on.server.names("configmaps")


async def policy(server: FakeApiServer) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/"
    body = network.policy(cluster(POOL, uid="uid-of-demo"), "default")
    server.put(path + body["metadata"]["name"], body)
    manifest = stored(a_manifest(POOL), uid="uid-of-demo")
    server.put("/apis/gpudask.dev/v1alpha1/namespaces/default/gpudaskclusters/demo", manifest)


LATER_ONE = {"preload": LATER}
WRITES = {
    "Service": Write("PATCH", "/services/", "", made("services", "demo")),
    "ConfigMap": Write("POST", "/configmaps", "demo", made("configmaps", "demo")),
    "NetworkPolicy": Write("PATCH", "/networkpolicies/", "", made("networkpolicies", "demo")),
    "budget": Write("PATCH", "/poddisruptionbudgets/", "", made("poddisruptionbudgets", "demo")),
    "scheduler": Write("POST", "/pods", "scheduler", made("pods", "scheduler")),
    "worker": Write("POST", "/pods", "worker", made("pods", "worker")),
    "dry run": Write("POST", "/pods", "idle", dry_run),
    "status": Write("PATCH", "/status", "", status),
    "deletion of a worker": Write("DELETE", "/pods/", "worker", fewer_workers),
    "preload": Write("POST", "/configmaps", "gpudask-preload", made("configmaps", NAME)),
    "reference": Write("PATCH", "/configmaps/", NAME, another_user, earlier("one")),
    "reference in an old one": Write("PATCH", "/configmaps/", NAME, reference_is_back, lost_reference, LATER_ONE),
    "release": Write(
        "PATCH", "/configmaps/", NAME, new_scheduler(lambda on: users(on) == ["two"]), earlier("one", "two"), LATER_ONE
    ),
    "last release": Write(
        "DELETE",
        "/configmaps/",
        NAME,
        new_scheduler(lambda on: NAME not in on.server.names("configmaps")),
        earlier("one"),
        LATER_ONE,
    ),
    "wrong contents": Write("DELETE", "/configmaps/", NAME, valid_contents, wrong_contents),
    "preload of its own": Write("DELETE", "/configmaps/", OWN, own_one_goes, one_of_its_own),
    "policies off": Write("DELETE", "/networkpolicies/", "", policy_goes, policy, {"network_policies": False}),
}


@pytest.mark.parametrize("answer", UNTRUE.values(), ids=UNTRUE)
@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_that_got_an_untrue_answer_is_tried_again(kind: str, answer: Answer):
    write, server = WRITES[kind], FakeApiServer()
    await write.before(server)
    async with operated(server, **{"preload": THIS, "random": lambda: 0.5} | write.context) as on:
        busy = server.fail(write.method, write.path, BUSY, name=write.name)
        untrue = server.fail(write.method, write.path, answer, name=write.name, times=1)
        look = await write.act(on)
        await asyncio.sleep(REST_SECONDS)
        assert not look()
        server.mend(busy)
        await becomes(look, bool, seconds=SECONDS)
        assert untrue.met == 1


async def test_a_pod_that_a_conflict_says_is_there_is_not_gone_for_one_answer():
    """It would stay, as nobody's: a scheduler beside its successor, or a worker that no pass deletes."""
    on = Operated()
    try:
        on.apply(POOL)
        await becomes(lambda: len(on.pods()), 2)
        on.server.fail("DELETE", "/pods/", UNTRUE["conflict"], name="worker", times=1)
        on.server.fail("GET", "/pods/", UNTRUE["not found"], name="worker", times=1)
        look = await fewer_workers(on)
        await becomes(look, bool)
    finally:
        await on.stop()
