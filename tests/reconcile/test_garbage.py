"""A cluster that has ended is gone from memory at once: nothing of it waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpudask.api.resource import owner_key
from tests.builders import a_pool
from tests.clients.fake_api_server import refusal
from tests.reconcile.in_memory import Operated, becomes, operated

OWNER = owner_key("default", "uid-of-demo")


@contextmanager
def garbage() -> Iterator[Counter[str]]:
    """By class, the objects of ours that the block leaves to the collector, once it has ended."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        kinds = (type(item) for item in gc.garbage)
        found.update(kind.__qualname__ for kind in kinds if kind.__module__.startswith("gpudask."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def deleted(on: Operated) -> None:
    on.delete()

    def is_over() -> bool:
        """A pass that makes a pod anew looks for the cluster, unless it saw that a moment ago."""
        if "demo-cpu-worker-0" in on.pods():
            on.lose("demo-cpu-worker-0")
        return on.tasks["demo"].done()

    await becomes(is_over, bool)


async def cancelled(on: Operated) -> None:
    on.tasks["demo"].cancel()
    await asyncio.wait([on.tasks["demo"]], timeout=30)


async def failing(on: Operated) -> None:
    """No Service can be made anew."""
    (service,) = on.context.dependents["Service"].owned(OWNER)
    fault = on.server.fail("PATCH", "/services/", refusal(403, "no", "Forbidden"), times=1000)
    del on.server.objects["/api/v1/namespaces/default/services/demo-scheduler"]
    on.context.dependents["Service"].forget("default", service.uid)
    await becomes(lambda: fault.met, bool)
    await cancelled(on)


async def gone_while_it_is_written(on: Operated) -> None:
    on.delete()
    pod = "/api/v1/namespaces/default/pods/demo-cpu-worker-0"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    on.watch(on.server.put(pod, on.server.objects[pod] | {"status": {"conditions": [condition]}}))
    await asyncio.wait([on.tasks["demo"]], timeout=30)


@pytest.mark.parametrize("ends", [deleted, gone_while_it_is_written, cancelled, failing])
async def test_an_ended_cluster_leaves_nothing_to_the_collector(ends: Callable[[Operated], object]):
    async with operated() as on:
        with garbage() as found:
            on.apply(a_pool("cpu", replicas=2))
            await becomes(lambda: on.condition("SchedulerReady"), lambda said: "starting" in said)
            await ends(on)  # type: ignore[misc]
            on.forget()
        assert found == {}


async def test_of_a_namespace_whose_clusters_are_gone_no_writer_stays():
    async with operated() as on:
        on.apply(a_pool("cpu", replicas=1))
        await becomes(lambda: on.condition("SchedulerReady"), lambda said: "starting" in said)
        assert list(on.context.preloads._writers) == ["default"]
        await cancelled(on)
        on.forget()
        assert list(on.context.preloads._writers) == []
