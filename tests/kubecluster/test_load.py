"""What programs cost the API server: idle ones next to nothing, and none asks a busy server in haste."""

import asyncio
import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster.forward.pod_port import open_port
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.timing import Clock, Timing
from tests.eventually import eventually
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import add_scheduler
from tests.kubecluster.test_connecting import result_of_sum

_SPEED = 100
_MINUTES = 10


async def fast_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds / _SPEED)


def fast() -> Timing:
    """Every interval passes a hundred times as fast; deadlines, by which others have to answer, are two minutes."""
    return Timing(
        clock=Clock(monotonic=lambda: time.monotonic() * _SPEED, sleep=fast_sleep),
        found_seconds=_SPEED * 120.0,
        least_request_seconds=120.0,
        forward_pong_seconds=_SPEED * 120.0,
    )


@pytest.mark.parametrize("forbidden", [set(), {"WATCH pods"}], ids=["may watch pods", "may list them only"])
def test_an_idle_notebook_asks_at_most_twice_a_minute(demo: fake.FakeServer, forbidden: set[str]):
    demo.forbidden |= forbidden
    demo.watch_speed = _SPEED
    with KubeCluster.from_name("demo", timing=fast()) as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        began, asked_before = time.monotonic(), len(demo.requests)

        time.sleep(_MINUTES * 60 / _SPEED)  # what is measured is what happens meanwhile
        eventually(lambda: len(demo.requests) > asked_before, "it asks for something, sooner or later")

        asked = demo.requests[asked_before:]
        minutes = (time.monotonic() - began) * _SPEED / 60  # more of them where this thread was late
        assert client.submit(sum, [2, 2]).result(timeout=60) == 4, "it is still connected"
    assert len(asked) <= 2 * minutes, asked


def test_what_leads_to_a_pod_that_is_gone_is_cut_also_where_pods_may_be_listed_only(demo: fake.FakeServer):
    demo.forbidden.add("WATCH pods")
    with KubeCluster.from_name("demo", timing=fast()) as cluster, Client(cluster) as client:
        before = len(demo.forwards)
        demo.silence_connections()
        demo.pods[:] = [fake.scheduler_pod("demo-scheduler-00000", uid="another")]
        eventually(lambda: len(demo.forwards) > before, "it connects to the other pod")

        assert result_of_sum(client) == 3


def test_a_start_asks_for_little(demo: fake.FakeServer):
    with KubeCluster.from_name("demo"):
        asked = Counter(demo.requests)

    assert sum(asked.values()) <= 10, asked  # one is the watch of the cluster's conditions
    assert asked[f"GET {fake.PODS}"] <= 3, asked


def test_a_scheduler_that_takes_long_is_not_asked_for_in_haste(server: fake.FakeServer):
    with pytest.raises(KubeClusterError, match="was not ready within 2 s"):
        KubeCluster.from_name("demo", timeout=2, quiet=True)

    assert len(server.requests) <= 8, server.requests


def test_it_is_seen_at_once_when_it_is_there(server: fake.FakeServer, dask: Any):
    """Changes are told: nobody has to look again and again."""
    timing = Timing(readiness_told_seconds=3600, readiness_poll_seconds=3600)

    def come() -> None:
        eventually(lambda: f"WATCH {fake.PODS}" in server.requests, "it watches the pods")
        add_scheduler(server, dask, "demo-scheduler-00000")

    coming = threading.Thread(target=come)
    coming.start()
    # At the end of its time it looks once more: that is an hour, so what is not seen before is a test that hangs.
    with KubeCluster.from_name("demo", timeout=3600, quiet=True, timing=timing) as cluster:
        assert len(cluster.scheduler_info["workers"]) == 2
    coming.join()


class Naps:
    """A clock that notes what it slept, and whose time stands still."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        now = datetime(2026, 1, 1, tzinfo=UTC)
        self.timing = Timing(clock=Clock(sleep=self._sleep, now=lambda: now))

    async def _sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("status", "headers", "naps"),
    [
        (429, {}, [0.5, 1.0]),
        (429, {"Retry-After": "3"}, [3.0, 3.0]),
        (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:02 GMT"}, [2.0, 2.0]),
        (429, {"Retry-After": "86400"}, [10.0, 10.0]),
        (429, {"Retry-After": "soon"}, [0.5, 1.0]),
        (503, {}, [0.5, 1.0]),
    ],
)
async def test_a_busy_server_is_asked_again_as_late_as_it_says(
    server: fake.FakeServer, status: int, headers: dict[str, str], naps: list[float]
):
    clock = Naps()
    api = await Server.connect(None, timing=clock.timing)
    server.busy = [(status, headers)] * 2

    assert len(await api.clusters()) == 1
    assert clock.taken == naps


async def test_so_is_one_that_opens_no_port(server: fake.FakeServer):
    clock = Naps()
    server.pods.append(fake.scheduler_pod("demo-scheduler-00000"))
    api = await Server.connect(None, timing=clock.timing)
    server.busy = [(429, {"Retry-After": "3"})]

    async with open_port(api, "demo-scheduler-00000", 8787):
        assert clock.taken == [3.0]


async def test_one_that_stays_busy_is_said(server: fake.FakeServer):
    clock = Naps()
    api = await Server.connect(None, timing=clock.timing)
    server.busy = [(429, {})] * 9

    with pytest.raises(KubeClusterError, match="too many requests") as raised:
        await api.clusters()
    assert raised.value.status == 429
    assert len(clock.taken) == 3


async def test_a_write_that_may_have_been_done_is_not_repeated(server: fake.FakeServer):
    clock = Naps()
    api = await Server.connect(None, timing=clock.timing)
    server.busy = [(503, {})]

    with pytest.raises(KubeClusterError):
        await api.create({"metadata": {"name": "mine"}, "spec": {}})
    assert clock.taken == []


async def test_requests_are_no_lines_in_a_program_s_log(server: fake.FakeServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    await (await Server.connect(None)).clusters()

    assert [record.getMessage() for record in caplog.records if record.name == "httpx"] == []
