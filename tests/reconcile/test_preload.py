"""The preload's ConfigMap: a namespace's clusters share it, and nobody else's contents run in a scheduler."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from typing import Any

import pytest

from gpudask.desired import preload
from gpudask.reconcile.preload_configmaps import observe_shared
from tests.builders import a_pool
from tests.clients.fake_api_server import FakeApiServer, refusal
from tests.reconcile.in_memory import Operated, becomes, operated
from tests.virtual_time import VirtualPolicy

THIS, LATER = {"gpudask_entry.py": b"this"}, {"gpudask_entry.py": b"later"}
NAME, LATER_NAME = preload.name(THIS), preload.name(LATER)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps/"
POOL = a_pool("cpu", replicas=1)


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    return VirtualPolicy()


class OneAtATime(FakeApiServer):
    """Fails the test where two requests for the same ConfigMap are made at once: they would hold each other up."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0

    async def _send(self, method: str, path: str, query: dict[str, str], *, body: Any = None, **more: Any) -> Any:
        counts = (
            "/configmaps" in path and "gpudask-preload-" in f"{path} {(body or {}).get('metadata', {}).get('name')}"
        )
        assert not (counts and self.under_way), "two at once"
        self.under_way += counts
        try:
            return await super()._send(method, path, query, body=body, **more)
        finally:
            self.under_way -= counts


def found(on: Operated, name: str = NAME) -> Json | None:
    return on.server.objects.get(CONFIG_MAPS + name)


def users(on: Operated, name: str = NAME) -> list[str]:
    """The clusters that a ConfigMap names as its owners."""
    return sorted(item["name"] for item in (found(on, name) or {"metadata": {}})["metadata"].get("ownerReferences", ()))


def schedulers(on: Operated) -> list[str]:
    return [name for name in on.pods() if "-scheduler-" in name]


def mounted(on: Operated) -> set[str]:
    """What the scheduler pods mount."""
    pods = [body for path, body in on.server.objects.items() if "/pods/" in path and "-scheduler-" in path]
    return {item["configMap"]["name"] for pod in pods for item in pod["spec"]["volumes"] if "preload" in item["name"]}


def tell(on: Operated, name: str = NAME) -> None:
    """The watch tells what became of a ConfigMap."""
    body = found(on, name)
    assert body is not None
    on.watch(body)


def lose(on: Operated, name: str = NAME) -> None:
    """Somebody deletes a ConfigMap, and the watch tells."""
    body = on.server.objects.pop(CONFIG_MAPS + name)
    on.context.preloads.caches.forget("default", body["metadata"]["uid"])


def asked(on: Operated) -> list[str]:
    """The requests for what is shared."""
    return [said for said in on.server.log if " configmaps gpudask-preload-" in said]


async def a_version_before(server: FakeApiServer, *clusters: str) -> None:
    """An operator of another version makes clusters, and ends."""
    async with operated(server, preload=THIS) as before:
        for name in clusters:
            before.apply(POOL, name=name)
        await becomes(lambda: len(before.pods()), 2 * len(clusters))
        await asyncio.sleep(5)
    server.log.clear()


async def replace_scheduler(on: Operated, name: str) -> None:
    """A cluster's scheduler pod vanishes, and another one is made."""
    (old,) = [pod for pod in schedulers(on) if pod.startswith(name)]
    on.lose(old)
    await becomes(lambda: [pod for pod in schedulers(on) if pod.startswith(name)], bool)
    await asyncio.sleep(2)


async def test_two_clusters_share_one():
    async with operated(preload=THIS) as on:
        on.apply(POOL, name="one")
        await becomes(lambda: len(on.pods()), 2)
        on.apply(POOL, name="two")
        await becomes(lambda: users(on), ["one", "two"])
        await becomes(lambda: len(on.pods()), 4)
        assert [name for name in on.server.names("configmaps") if "preload" in name] == [NAME]
        assert mounted(on) == {NAME}
        body = found(on)
        assert body is not None
        assert body["immutable"] is True
        assert not any(item.get("controller") for item in body["metadata"]["ownerReferences"])


async def test_a_hundred_clusters_at_once_make_one():
    names = [f"c{number:02}" for number in range(100)]
    async with operated(OneAtATime(), preload=THIS) as on:
        on.server.seconds = 0.2
        for name in names:
            on.apply(POOL, name=name)
        await becomes(lambda: len(schedulers(on)), 100)
        await becomes(lambda: users(on), names)
        await asyncio.sleep(5)
        assert len(asked(on)) < 20, "each carries what all wait for"
        assert {said.partition(" ")[0] for said in asked(on)} == {"POST", "PATCH"}


async def test_no_request_is_made_for_it_after_a_restart():
    async with operated(preload=THIS) as before:
        await a_version_before(before.server, "one", "two")
        async with operated(before.server, preload=THIS) as on:
            on.take_over()
            await asyncio.sleep(60)
            assert asked(on) == []


async def test_another_version_keeps_what_a_scheduler_mounts_and_then_lets_it_go():
    server = FakeApiServer()
    await a_version_before(server, "one", "two")
    async with operated(server, preload=LATER) as on:
        on.take_over()
        await asyncio.sleep(60)
        assert asked(on) == [], "its schedulers run on"
        await replace_scheduler(on, "one")
        assert (users(on), users(on, LATER_NAME)) == (["two"], ["one"])
        await replace_scheduler(on, "two")
        assert (found(on), users(on, LATER_NAME)) == (None, ["one", "two"])


async def test_two_that_leave_at_once_leave_nothing():
    server = FakeApiServer()
    await a_version_before(server, "one", "two")
    async with operated(server, preload=LATER) as on:
        server.seconds = 0.3
        on.take_over()
        await asyncio.sleep(1)
        for pod in schedulers(on):
            on.lose(pod)
        await becomes(lambda: users(on, LATER_NAME), ["one", "two"])
        await becomes(lambda: found(on), None)


async def test_what_a_version_before_made_for_one_cluster_stays_while_a_pod_mounts_it():
    server = FakeApiServer()
    await a_version_before(server, "one")
    own = "one-gpudask-preload-0123abcd"
    (path,) = [path for path in server.objects if "/pods/one-scheduler" in path]
    pod = server.objects[path]
    (volume,) = [item for item in pod["spec"]["volumes"] if item["name"] == "gpudask-preload"]
    volume["configMap"] = {"name": own, "items": [{"key": "pools.json", "path": "pools.json"}]}
    del server.objects[CONFIG_MAPS + NAME]
    meta = pod["metadata"]
    metadata = {"name": own, "namespace": "default", "labels": meta["labels"]}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | {"ownerReferences": meta["ownerReferences"]},
    }
    server.put(CONFIG_MAPS + own, body)
    async with operated(server, preload=LATER) as on:
        on.take_over()
        await asyncio.sleep(60)
        assert found(on, own) is not None
        assert found(on, LATER_NAME) is None
        await replace_scheduler(on, "one")
        assert found(on, own) is None
        assert mounted(on) == {LATER_NAME}


async def test_one_that_somebody_deletes_comes_back_and_not_as_often_as_one_likes():
    async with operated(preload=THIS) as on:
        on.apply(POOL)
        await becomes(lambda: len(on.pods()), 2)
        await becomes(lambda: users(on), ["demo"])
        await asyncio.sleep(1)
        lose(on)
        await becomes(lambda: users(on), ["demo"], seconds=1.0)
        on.server.log.clear()
        for _ in range(300):
            if found(on) is not None:
                lose(on)
            await asyncio.sleep(1)
        assert 5 < len([said for said in asked(on) if said.startswith("POST")]) < 30
        assert "again and again" in on.condition("Degraded")


async def test_a_reference_that_somebody_takes_off_is_put_back():
    async with operated(preload=THIS) as on:
        on.apply(POOL)
        await becomes(lambda: users(on), ["demo"])
        await asyncio.sleep(2)
        body = found(on)
        assert body is not None
        on.server.put(CONFIG_MAPS + NAME, body | {"metadata": body["metadata"] | {"ownerReferences": []}})
        tell(on)
        await becomes(lambda: users(on), ["demo"], seconds=1.0)


@pytest.mark.parametrize(
    "contents",
    [{"immutable": True, "data": {"gpudask_entry.py": "evil"}}, {"data": {"gpudask_entry.py": "this"}}],
    ids=["others", "not for ever"],
)
async def test_wrong_contents_are_replaced_before_a_scheduler_is_made(contents: Json):
    server = FakeApiServer()
    metadata = {"name": NAME, "namespace": "default", "labels": {"gpudask.dev/preload": "shared"}}
    server.put(CONFIG_MAPS + NAME, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **contents})
    held: list[Json | None] = []
    async with operated(server, preload=THIS) as on:
        server.on_request = lambda said: held.append(found(on)) if "POST pods demo-scheduler" in said else None
        on.fill_caches()
        on.apply(POOL)
        await becomes(lambda: len(on.pods()), 2)
        assert held
        assert [body for body in held if body is None or not observe_shared(body).valid] == []
        assert users(on) == ["demo"]


async def test_what_somebody_else_made_by_its_name_stays_and_no_scheduler_is_made():
    server = FakeApiServer()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "default"}, "data": {}}
    theirs = server.put(CONFIG_MAPS + NAME, body)
    async with operated(server, preload=THIS) as on:
        on.apply(POOL)
        await becomes(lambda: on.condition("Degraded"), lambda said: "without the operator's label" in said)
        await asyncio.sleep(300)
        assert found(on) == theirs
        assert schedulers(on) == []
        assert len(asked(on)) < 40, "ever slower"
        del server.objects[CONFIG_MAPS + NAME]
        await becomes(lambda: len(schedulers(on)), 1, seconds=90.0)


async def test_one_clusters_failure_holds_back_no_other():
    async with operated(preload=THIS) as on:
        on.apply(POOL, name="one")
        await becomes(lambda: len(on.pods()), 2)
        on.server.fail("PATCH", f"/configmaps/{NAME}", refusal(500, "not today", "InternalError"))
        on.apply(POOL, name="two")
        await becomes(lambda: len(on.pods()), 4)
        assert users(on) == ["one"], "its contents are right, and that is all that a scheduler needs"


async def test_a_reference_that_hangs_holds_back_no_scheduler():
    async with operated(preload=THIS) as on:
        on.apply(POOL, name="one")
        await becomes(lambda: len(on.pods()), 2)
        hangs = asyncio.Event()
        on.server.fail("PATCH", f"/configmaps/{NAME}", until=hangs)
        for name in ("two", "three"):
            on.apply(POOL, name=name)
        await becomes(lambda: len(on.pods()), 6, seconds=2.0)
        hangs.set()
        await becomes(lambda: users(on), ["one", "three", "two"])


async def test_a_cluster_made_again_by_its_name_has_a_reference_of_its_own():
    async with operated(preload=THIS) as on:
        on.apply(POOL, name="one")
        await becomes(lambda: users(on), ["one"])
        body = found(on)
        assert body is not None
        (reference,) = body["metadata"]["ownerReferences"]
        older = [reference | {"uid": "of-the-one-before"}]
        on.server.put(CONFIG_MAPS + NAME, body | {"metadata": body["metadata"] | {"ownerReferences": older}})
        tell(on)
        await becomes(lambda: users(on), ["one", "one"])


async def test_one_that_vanishes_while_it_is_referred_to_is_made_again_at_once():
    """The garbage collector takes it with its last cluster, in the moment in which the next one comes."""
    async with operated(preload=THIS) as on:
        on.apply(POOL, name="one")
        await becomes(lambda: len(on.pods()), 2)
        await asyncio.sleep(1)
        on.tasks["one"].cancel()
        del on.server.objects[CONFIG_MAPS + NAME]  # the cache knows it still
        on.apply(POOL, name="two")
        await becomes(lambda: len(on.pods()), 4, seconds=1.0)
        assert users(on) == ["two"]
