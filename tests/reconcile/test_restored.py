"""An etcd that was restored from a backup: the older objects count, where the API server has them."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.resource import LABEL_CLUSTER
from gpudask.clients.reflector import Reflector
from gpudask.reconcile.drift_repair import observe_owned
from gpudask.reconcile.resource_copy import Change, ResourceCopy
from tests.builders import a_manifest, a_pool
from tests.planning.builders import stored
from tests.reconcile.fake_api import Bench, FakeApi
from tests.reconcile.stage import Stage


def a_bench() -> Bench:
    return Bench(FakeApi(), stored(a_manifest(a_pool(replicas=1))))


def workers(bench: Bench) -> int:
    return sum("worker" in name for name in bench.names())


async def test_an_older_spec_that_the_api_server_has_holds():
    bench = a_bench()
    backup = dict(bench.api.objects[bench.resource])
    await bench.run(3)
    bench.edit(a_manifest(a_pool(replicas=3))["spec"])
    await bench.run(3)
    assert workers(bench) == 3
    bench.resource_changed(bench.api.put(bench.resource, backup))
    await bench.run(3)
    assert workers(bench) == 1


async def test_word_of_an_older_spec_that_comes_late_changes_nothing():
    bench = a_bench()
    late = dict(bench.api.objects[bench.resource])
    bench.edit(a_manifest(a_pool(replicas=3))["spec"])
    bench.resource_changed(late)
    await bench.run(3)
    assert workers(bench) == 3
    asked = bench.count("GET", "gpudaskclusters")
    await bench.run(60)
    assert bench.count("GET", "gpudaskclusters") == asked, "it is looked up once"


@pytest.mark.parametrize("by_refresh", [False, True])
async def test_an_answer_that_an_event_overtook_puts_nothing_back(by_refresh: bool):
    """Labels say who pays, and an edit of them has no new generation."""
    bench = a_bench()
    older = dict(bench.api.objects[bench.resource])
    newer = bench.api.put(bench.resource, older | {"metadata": older["metadata"] | {"labels": {"team": "blue"}}})
    copy = ResourceCopy(bench.context, older)

    async def get(*_: Any) -> Any:
        copy.update(newer)
        return older

    if by_refresh:
        bench.api.get_cluster = get  # type: ignore[method-assign]
        copy.update(await copy.refresh())
    else:
        copy.update(newer)
        copy.update(older)
    assert (copy.body["metadata"]["labels"], copy.version) == ({"team": "blue"}, newer["metadata"]["resourceVersion"])


async def test_the_late_event_of_what_a_look_brought_puts_nothing_back():
    """A look may be first with it, and the answer to an edit of ours come before the event."""
    bench = a_bench()
    first = dict(bench.api.objects[bench.resource])
    copy = ResourceCopy(bench.context, first)
    looked_up = bench.api.put(bench.resource, first | {"metadata": first["metadata"] | {"labels": {"team": "blue"}}})
    copy.update(await copy.refresh())
    edited = {"metadata": looked_up["metadata"] | {"generation": 2}, "spec": a_manifest(a_pool(replicas=3))["spec"]}
    copy.update(bench.api.put(bench.resource, looked_up | edited))
    copy.update(looked_up)
    assert copy.body["metadata"]["generation"] == 2


async def test_word_of_an_older_status_asks_for_nothing():
    bench = a_bench()
    older = dict(bench.api.objects[bench.resource])
    copy = ResourceCopy(bench.context, bench.api.put(bench.resource, older | {"status": {"phase": "Running"}}))
    assert (copy.update(older), copy.has_older) == (Change.NONE, False)


async def test_another_spec_of_the_same_generation_is_an_edit():
    """One more edit after the backup, and one more after it was restored, have the same number."""
    bench = a_bench()
    await bench.run(3)
    there = bench.api.objects[bench.resource]
    bench.resource_changed(bench.api.put(bench.resource, there | {"spec": a_manifest(a_pool(replicas=2))["spec"]}))
    await bench.run(3)
    assert workers(bench) == 2


@pytest.mark.api
@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_version_of_the_past_is_reached_and_one_of_the_future_is_not(stage: Stage, *, metadata_only: bool):
    made = await stage.apply(a_pool())
    cache: Reflector[Any] = Reflector(
        stage.api,
        f"/api/v1/namespaces/{stage.namespace}/services",
        label=LABEL_CLUSTER,
        reduce=observe_owned("Service"),
        on_change=lambda _: None,
        metadata_only=metadata_only,
    )
    reached = await cache._list()
    assert await cache._has_reached(reached)
    assert await cache._has_reached(made["metadata"]["resourceVersion"])
    assert not await cache._has_reached(str(int(reached) + 10**9))
