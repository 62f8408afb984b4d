"""Requests are admitted round robin by cluster: what one cluster asks for in bulk holds back no other's first pod."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpudask.api.resource import API_VERSION, PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import CLUSTER, FairQueue
from tests.clients.fake_api_server import FakeApiServer, refusal


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    server.seconds = 0.001
    yield server
    await server.close()


def pod(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}


def asks(cluster: str, server: FakeApiServer, name: str, *, bulk: bool = False) -> asyncio.Task[Any]:
    """A task of `cluster` that creates a pod."""

    async def create() -> None:
        CLUSTER.set(cluster)
        await server.create(pod(name), bulk=bulk)

    return asyncio.create_task(create())


SEQUENCES = {
    # what others have asked for when B does, by cluster; requests that may still come before B's
    "one wants 5,000": ({"a": 5000}, 2),
    "one wants a few": ({"a": 3}, 3),
    "ten want 100 each": ({f"a{n}": 100 for n in range(10)}, 64 + 10),
    "a thousand of a thousand namespaces want one each": ({f"a{n}": 1 for n in range(1000)}, 1000),
    "a thousand of one namespace want one each": ({f"theirs/a{n}": 1 for n in range(1000)}, 2),
    "a thousand of one namespace want ten each": ({f"theirs/a{n}": 10 for n in range(1000)}, 2),
}


@pytest.mark.parametrize(("others", "before"), SEQUENCES.values(), ids=SEQUENCES)
async def test_the_first_pod_of_a_cluster_comes_within_a_few_requests_whatever_others_want(
    server: FakeApiServer, others: dict[str, int], before: int
):
    wanted = [
        asks(name, server, f"{name.replace('/', '-')}-{n}", bulk=n > 0)
        for name, many in others.items()
        for n in range(many)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    already = len(server.log)
    await asks("b", server, "b-gpu")
    assert server.log.index("POST pods b-gpu") - already <= before, "those in turn before it, and what was under way"
    await asyncio.gather(*wanted)
    assert len(server.log) == sum(others.values()) + 1


async def test_it_says_how_many_wait(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    async with server._queue.slot():
        tasks = [asks(name, server, f"{name}{n}", bulk=n > 0) for name in "ab" for n in range(2)]
        await asyncio.sleep(0)
        assert server.waiting == 4
    await asyncio.gather(*tasks)
    assert server.waiting == 0


async def test_clusters_that_wait_take_turns(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    async with server._queue.slot():
        tasks = [asks(name, server, f"{name}{n}") for name in "abc" for n in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert [said.split()[-1] for said in server.log] == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


async def test_within_a_cluster_what_is_asked_for_in_bulk_comes_last(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    tasks = [asks("a", server, name, bulk=name.startswith("bulk")) for name in ("one", "bulk0", "bulk1", "two")]
    await asyncio.gather(*tasks)
    assert [said.split()[-1] for said in server.log] == ["one", "two", "bulk0", "bulk1"]


async def test_a_deletion_does_not_wait_behind_the_creations_of_its_cluster(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    uid = (await server.create(pod("old")))["metadata"]["uid"]
    creations = [asks("a", server, f"new{n}", bulk=True) for n in range(100)]
    await asyncio.sleep(0)

    async def delete() -> None:
        CLUSTER.set("a")
        await server.delete_pod("default", "old", uid=uid)

    await asyncio.create_task(delete())
    assert len(server.log) <= 4
    await asyncio.gather(*creations)


async def test_the_total_stays_bounded_and_one_cluster_has_a_part_of_it(server: FakeApiServer):
    active, most = 0, [0]
    queue = FairQueue(8, 3)

    async def work(cluster: str) -> None:
        nonlocal active
        CLUSTER.set(cluster)
        async with queue.slot():
            active += 1
            most.append(active)
            await asyncio.sleep(0.001)
            active -= 1

    await asyncio.gather(*(asyncio.create_task(work("a")) for _ in range(20)))
    assert max(most) == 3
    await asyncio.gather(*(asyncio.create_task(work(name)) for name in "abcdef" for _ in range(20)))
    assert max(most) == 8


async def test_namespaces_take_turns_and_within_each_its_clusters(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    async with server._queue.slot():
        tasks = [asks(f"a/{name}", server, f"a{name}{n}") for name in range(3) for n in range(2)]
        tasks += [asks("b/0", server, f"b{n}") for n in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    said = [line.split()[-1] for line in server.log]
    assert said == ["a00", "b0", "a10", "b1", "a20", "b2", "a01", "a11", "a21"]


async def test_the_statuses_of_a_thousand_clusters_hold_back_none_of_another_namespace(server: FakeApiServer):
    def written(namespace: str, name: str) -> asyncio.Task[Any]:
        there = {"apiVersion": API_VERSION, "metadata": {"name": name, "namespace": namespace}}
        body = server.put(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}", there)
        uid, version = body["metadata"]["uid"], body["metadata"]["resourceVersion"]

        async def write() -> None:
            CLUSTER.set(f"{namespace}/{name}")
            await server.write_status(namespace, name, uid=uid, version=version, status={})

        return asyncio.create_task(write())

    theirs = [written("theirs", f"a{n}") for n in range(1000)]
    await asyncio.sleep(0)
    await written("ours", "b")
    assert len(server.log) <= 20, "those under way, and as many again"
    await asyncio.gather(*theirs)
    assert len(server.log) == 1001


async def test_requests_of_a_namespace_that_hang_leave_the_other_namespaces_theirs(server: FakeApiServer):
    over = asyncio.Event()
    server.fail("POST", "/pods", until=over, name="a-")
    hanging = [asks(f"theirs/{n}", server, f"a-{n}") for n in range(1000)]
    async with asyncio.timeout(60):
        await asks("ours/1", server, "b-gpu")
    over.set()
    await asyncio.gather(*hanging)


async def test_requests_that_hang_leave_the_other_clusters_theirs(server: FakeApiServer):
    over = asyncio.Event()
    server.fail("POST", "/pods", until=over, name="a-")
    hanging = [asks("a", server, f"a-{n}") for n in range(200)]
    async with asyncio.timeout(60):
        await asks("b", server, "b-gpu")
    over.set()
    await asyncio.gather(*hanging)


@pytest.mark.parametrize("turns", range(5))
async def test_a_request_that_is_cancelled_gives_its_turn_back_at_any_moment(turns: int):
    queue = FairQueue(1, 1)

    async def work() -> None:
        async with queue.slot():
            await asyncio.sleep(0)

    for _ in range(10):
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[0].cancel()
        await asyncio.wait(tasks)
    async with asyncio.timeout(60):
        await work()
    assert not queue._active
    assert not queue._waiting


async def test_a_list_and_a_watch_take_no_turn(server: FakeApiServer):
    server._queue = FairQueue(1, 1)
    async with server._queue.slot(), asyncio.timeout(60):
        with pytest.raises(ApiError):
            await server.list_page("/api/v1/namespaces/default/pods", query={}, accept="")


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("100000", 300.0), ("9" * 400, 300.0), ("soon", None), ("-1", None)]
)
async def test_the_server_says_when_to_come_again(server: FakeApiServer, header: str, seconds: float | None):
    server.fail("GET", "/pods", refusal(429, "too many", "TooManyRequests", **{"Retry-After": header}))
    with pytest.raises(ApiError) as caught:
        await server.get_pod("default", "p")
    assert caught.value.retry_after_seconds == seconds
