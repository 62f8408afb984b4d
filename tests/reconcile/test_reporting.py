"""Events, and a status that is written once a pass at most."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest

from gpudask.api.resource import Cluster, InvalidSpecError, parse
from gpudask.clients.kubernetes import Kubernetes
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, eventually, operating, stays

pytestmark = pytest.mark.api


async def events(stage: Stage, reason: str) -> list[dict[str, Any]]:
    return [item for item in await stage.list("events", "events.k8s.io/v1") if item["reason"] == reason]


async def scale_up_and_down(stage: Stage) -> None:
    scheduler = await stage.scheduler()
    await scheduler.want(1, GPU=1)
    await eventually(lambda: stage.names(pool="gpu"), lambda names: len(names) == 1, "a GPU pod")
    await scheduler.want(0)
    await stage.becomes(lambda: stage.names(pool="gpu"), [])


async def test_events_say_why_and_repetitions_count_up_also_for_the_next_operator(stage: Stage):
    async def ups() -> list[tuple[str, int]]:
        found = [item for item in await events(stage, "ScaledUp") if "pool gpu" in item["note"]]
        return [(item["note"], (item.get("series") or {}).get("count", 1)) for item in found]

    note = "pool gpu: 0 -> 1 pods (autoscale): 1 tasks wait, 0 assigned"
    async with operating(stage.settings):
        await stage.apply(a_pool(), gpu_pool(idle="1s"))
        await stage.shows("Ready", "True AllReady")
        await scale_up_and_down(stage)
        await stage.becomes(ups, [(note, 1)])
        await scale_up_and_down(stage)
        await stage.becomes(ups, [(note, 2)])
    stage.kubelet.schedulers["demo"].polls = 0
    async with operating(stage.settings):
        await scale_up_and_down(stage)
        await stage.becomes(ups, [(note, 2)], "one object still")
        await scale_up_and_down(stage)
        await stage.becomes(ups, [(note, 3)])
    (event,) = [item for item in await events(stage, "ScaledUp") if item["note"] == note]
    assert (event["regarding"]["name"], event["type"]) == ("demo", "Normal")


async def test_trouble_is_a_warning(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), gpu_pool())
    await (await stage.scheduler()).want(2, GPU=7)
    (event,) = await eventually(lambda: events(stage, "NoPoolServes"), bool, "an event")
    assert event["type"] == "Warning"
    assert "2 tasks want GPU: 7" in event["note"]


async def test_a_pass_writes_the_status_once_at_most(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    writes: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("writes", default=None)
    passes: list[list[str]] = []
    make_pass, write = Reconciler.reconcile, Kubernetes.write_status

    async def counted_pass(self: Reconciler) -> float:
        mine: list[str] = []
        writes.set(mine)
        passes.append(mine)
        return await make_pass(self)

    async def counted_write(self: Kubernetes, namespace: str, name: str, **rest: Any) -> Any:
        mine = writes.get()
        assert mine is not None, "the status is written in passes only"
        mine.append(name)
        return await write(self, namespace, name, **rest)

    monkeypatch.setattr(Reconciler, "reconcile", counted_pass)
    monkeypatch.setattr(Kubernetes, "write_status", counted_write)
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=3), gpu_pool(idle="1s"))
        await stage.shows("Ready", "True AllReady")
        await scale_up_and_down(stage)
        await stage.apply(a_pool(replicas=1), suspend=True)
        await stage.shows("Ready", "False Suspended")
    print(f"{len(passes)} passes, {sum(map(len, passes))} status writes")
    assert max(map(len, passes)) == 1


async def test_only_the_named_namespaces_are_watched(stage: Stage, operator: Operator):
    elsewhere = f"{stage.namespace}-other"
    await stage.api.request(
        "POST", "/api/v1/namespaces", body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}}
    )
    other = Stage(stage.api, elsewhere, stage.kubeconfig)
    await other.apply(a_pool())
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    await stays(lambda: other.list("pods"), [], 0.5)
    assert await other.status() == {}


async def told_sorted(told: Any) -> Any:
    return sorted(await told())


async def test_a_stored_spec_that_breaks_a_later_rule_is_told_and_nothing_is_touched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    def stricter(body: dict[str, Any]) -> Cluster:
        if body["spec"].get("suspend"):
            raise InvalidSpecError(f"spec.suspend: {rule[-1]}")
        return parse(body)

    async def told() -> list[tuple[str, str, int]]:
        found = await events(stage, "Invalid")
        return [(item["type"], item["note"], (item.get("series") or {}).get("count", 1)) for item in found]

    first = ("Warning", "spec.suspend: a rule that came later", 1)
    second = ("Warning", "spec.suspend: another rule", 1)
    rule = ["a rule that came later"]

    monkeypatch.setattr("gpudask.reconcile.resource_copy.parse", stricter)
    async with operating(stage.settings):
        await stage.apply(a_pool())
        await stage.shows("Ready", "True AllReady")
        await stage.apply(a_pool(), suspend=True)
        assert "spec.suspend: a rule that came later" in await stage.shows("Accepted", "False Invalid")
        assert len(await stage.names()) == 1, "what is there stays"
        await stage.becomes(told, [first])
    async with operating(stage.settings):
        await stays(told, [first], 0.5)
    rule.append("another rule")  # a later operator's
    async with operating(stage.settings):
        assert "another rule" in await stage.shows("Accepted", "another rule")
        await stage.becomes(lambda: told_sorted(told), sorted([first, second]))
        await stage.apply(a_pool())
        await stage.shows("Ready", "True AllReady")
