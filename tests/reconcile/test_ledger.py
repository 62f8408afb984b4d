"""The ledger in passes: through edits, invalid specs and the end of pods; and what it costs the API server."""

from __future__ import annotations

from gpudask.api import Json

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.status import Status, epoch, iso
from gpudask.planning.ledger.causes import Holder
from gpudask.planning.ledger.counting import Seen, count
from gpudask.planning.ledger.takeover import Arrival
from gpudask.reconcile import loop as under_test
from gpudask.reconcile.loop_memory import OwnCount
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.resource_copy import ResourceCopy
from gpudask.reconcile.status import StatusWriter
from tests.builders import a_manifest, a_pool, a_spec
from tests.planning.builders import cluster, pod, stored
from tests.reconcile.fake_api import Bench, FakeApi
from tests.reconcile.test_clocks import a_bench, kubelet

GPUS = 2  # of `a_bench`


async def placed() -> Bench:
    """A cluster whose two GPU pods have got their nodes just now."""
    bench = a_bench()
    await bench.run(2)
    kubelet(bench)
    await bench.run(0.01)
    return bench


def status(bench: Bench) -> Status:
    return bench.passes._status_writer.status


def written(bench: Bench) -> Json:
    pools = bench.api.objects[bench.resource]["status"]["pools"]
    return next(pool for pool in pools if pool["name"] == "gpu")


def seconds(bench: Bench) -> dict[str, float]:
    row = next(row for row in status(bench).pools if row.name == "gpu")
    assert row.gpu_seconds_held == pytest.approx(sum(each.gpu_seconds for each in row.causes), abs=0.01)
    return {each.cause: each.gpu_seconds for each in row.causes}


def status_writes(bench: Bench) -> int:
    return bench.count("PATCH", "/status")


async def test_a_spec_that_becomes_invalid_holds_its_gpus_on_and_so_it_is_written():
    bench = await placed()
    await bench.run(20)
    before = seconds(bench)
    bench.edit(a_spec(a_pool("gpu", replicas=2, gpu={"count": 1}), protocol="nonsense"))
    await bench.run(40)
    after = seconds(bench)
    assert sum(after.values()) - sum(before.values()) == pytest.approx(GPUS * 40, abs=GPUS * 15)
    assert "Invalid" in bench.condition("Accepted")
    assert sum(each["gpuSeconds"] for each in written(bench)["causes"]) > sum(before.values())


async def test_an_edit_by_a_person_costs_the_ledger_nothing():
    """The resource comes back with the status that was written last, and more is counted by now."""
    bench = await placed()
    await bench.run(7)
    bench.now += 5
    await bench.passes.reconcile()
    counted = sum(seconds(bench).values())
    bench.passes._status_writer.adopt()
    await bench.passes.reconcile()
    assert sum(seconds(bench).values()) >= counted


async def test_a_pod_counts_until_it_was_gone_however_late_the_pass_is():
    bench = await placed()
    await bench.run(10)
    before = sum(seconds(bench).values())
    ledger = bench.passes._status_writer.ledger
    assert ledger is not None
    at = ledger.at
    (gone, *_) = (each for each in bench.pods._by_uid.values() if each.pool == "gpu")
    path = next(path for path in bench.api.objects if path.endswith(f"/pods/{gone.name}"))
    bench.now += at + 4 - bench.clock.now()
    del bench.api.objects[path]
    bench.pods.forget(gone.uid)
    bench.now += 30
    await bench.passes.reconcile()
    assert sum(seconds(bench).values()) - before == pytest.approx(4 + 34, abs=0.1)


async def test_a_pod_that_goes_while_a_pass_writes_counts_until_then_by_the_next(monkeypatch: pytest.MonkeyPatch):
    bench = await placed()
    await bench.run(10)
    await bench.passes.reconcile()
    before, report = sum(seconds(bench).values()), bench.passes._report
    (gone, *_) = (each for each in bench.pods._by_uid.values() if each.pool == "gpu")
    path = next(path for path in bench.api.objects if path.endswith(f"/pods/{gone.name}"))

    async def later(*given: Any) -> float | None:
        monkeypatch.setattr(bench.passes, "_report", report)
        bench.now += 4
        del bench.api.objects[path]
        bench.pods.forget(gone.uid)
        return await report(*given)

    monkeypatch.setattr(bench.passes, "_report", later)
    await bench.passes.reconcile()
    bench.now += 30
    await bench.passes.reconcile()
    assert sum(seconds(bench).values()) - before == pytest.approx(4 + 34, abs=0.1)


async def test_counters_are_written_now_and_then_while_gpus_are_held():
    bench = await placed()
    await bench.run(120)
    before, held = status_writes(bench), written(bench)["gpuSecondsHeld"]
    await bench.run(150)
    assert 8 <= status_writes(bench) - before <= 11
    assert written(bench)["gpuSecondsHeld"] - held == pytest.approx(GPUS * 150, abs=GPUS * 16)


async def test_without_gpus_an_idle_cluster_writes_nothing():
    bench = Bench(FakeApi(), stored(a_manifest(a_pool("cpu", replicas=1))))
    await bench.run(5)
    kubelet(bench)
    await bench.run(300)
    before = status_writes(bench)
    await bench.run(3000)
    assert status_writes(bench) == before


@pytest.mark.parametrize("spec", [None, a_spec(a_pool("gpu", replicas=2, gpu={"count": 1}), protocol="nonsense")])
async def test_a_count_says_up_to_when_a_watch_has_told_of_pods(spec: Json | None):
    bench = await placed()
    await bench.run(20)
    if spec is not None:
        bench.edit(spec)
    await bench.run(1)
    told = bench.pods.known_at
    bench.now += 40
    await bench.passes.reconcile()
    assert bench.clock.now() - told > 30
    assert epoch(status(bench).pods_known_at) == pytest.approx(told + bench.clock.server_ahead(), abs=1)
    assert epoch(status(bench).counted_at) == pytest.approx(bench.clock.now() + bench.clock.server_ahead(), abs=1)


# --- a standby ---


class Loop:
    """In a ClusterLoop's place: what it inherits."""

    made: list[Loop]
    came_late = False

    def __init__(self, *_: Any) -> None:
        self.inherited: tuple[Arrival | None, list[Any]] | None = None
        self.record = SimpleNamespace(inherit=lambda *_: None)
        self.made.append(self)

    def inherit(self, came: Arrival | None, _own: OwnCount | None, gone: Any) -> None:
        self.inherited = came, list(gone)

    def doubt_copy(self, *, ended: bool) -> None:
        """There is nothing to doubt."""

    async def run(self) -> None:
        """Make no pass."""


def body(counted_at: Any) -> Json:
    return stored(a_manifest(a_pool("gpu", gpu={})), uid="u") | {"status": {"countedAt": counted_at}}


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A registry whose clock the test sets; the operator's is 1000 s ahead of it."""
    made = SimpleNamespace(now=10.0, loops=[])
    made.registry = Registry(lambda: made.now)
    monkeypatch.setattr(Loop, "made", made.loops, raising=False)
    monkeypatch.setattr(under_test, "ClusterLoop", Loop)
    started = SimpleNamespace(add_done_callback=lambda _: None, cancel=lambda: None)
    supervisor = SimpleNamespace(start=lambda run, **_: (run().close(), started)[1])
    pods = SimpleNamespace(owned=lambda _: ())
    made.context = SimpleNamespace(
        knows=lambda _: True, supervisor=supervisor, pods=pods, clock=lambda: made.now + 1000
    )
    return made


async def test_a_standby_has_seen_the_last_count_come_and_pods_go_since(standby: SimpleNamespace):
    registry, of = standby.registry, cluster(a_pool("gpu", gpu={}), uid="u")
    registry.cluster_changed(body("2026-12-01T18:00:00.000Z"))
    standby.now = 15.0
    registry.pod_gone(pod(of, "gpu", 0))
    standby.now = 50.0
    registry.pod_gone(pod(of, "gpu", 1))  # the count may have been on its way by then
    standby.now = 58.0
    registry.cluster_changed(body("2026-12-01T18:00:00.000Z"))  # somebody edited it
    standby.now = 60.0
    registry.cluster_changed(body("2026-12-01T18:00:50.000Z"))
    standby.now = 62.0
    registry.pod_gone(pod(of, "gpu", 3))
    registry.pod_gone(pod(cluster(a_pool("gpu", gpu={}), uid="another"), "gpu", 2))
    standby.now = 70.0
    registry.cluster_changed(body("2026-12-01T18:00:50.000Z"))  # somebody edited it
    registry.lead(standby.context)
    ((came, gone),) = [loop.inherited for loop in standby.loops]
    assert came == Arrival(1060.0, after=1058.0)
    assert [(each.name, at) for each, at in gone] == [("demo-gpu-worker-1", 1050.0), ("demo-gpu-worker-3", 1062.0)]


async def test_one_that_heard_nothing_for_long_knows_pods_that_went_before_the_count_that_came(
    standby: SimpleNamespace,
):
    """Its connection was cut: the list that came at last has a count of just after it was."""
    registry, of = standby.registry, cluster(a_pool("gpu", gpu={}), uid="u")
    registry.cluster_changed(body("2026-12-01T18:00:00.000Z"))
    standby.now = 20.0
    registry.pod_gone(pod(of, "gpu", 0))
    standby.now = 410.0
    registry.cluster_changed(body("2026-12-01T18:00:02.000Z"))
    registry.lead(standby.context)
    ((came, gone),) = [loop.inherited for loop in standby.loops]
    assert came == Arrival(1410.0, after=1010.0)
    assert [(each.name, at) for each, at in gone] == [("demo-gpu-worker-0", 1020.0)]


@pytest.mark.parametrize("counted_at", ["2026-12-01T18:00:00.000Z", None, 7, ["x"]])
async def test_one_that_found_the_last_count_there_asks_the_clocks(standby: SimpleNamespace, counted_at: Any):
    standby.registry.cluster_changed(body(counted_at))
    standby.now = 15.0
    standby.registry.pod_gone(pod(cluster(a_pool("gpu", gpu={}), uid="u"), "gpu", 0))
    standby.registry.lead(standby.context)
    ((came, gone),) = [loop.inherited for loop in standby.loops]
    assert came is None
    assert [(each.name, at) for each, at in gone] == [("demo-gpu-worker-0", 1015.0)]


# --- the status of another operator ---


def another_counts(bench: Bench, *, more: float, ago: float) -> None:
    """Another operator counted `more` GPU-seconds, `ago` seconds before now, and wrote that."""
    bench.api.refuses_old = True
    body = copy.deepcopy(bench.api.objects[bench.resource])
    body["status"]["countedAt"] = iso(bench.api.now() - ago)
    row = next(row for row in body["status"]["pools"] if row["name"] == "gpu")
    row["causes"][0]["gpuSeconds"] += more
    row["gpuSecondsHeld"] += more
    bench.api.put(bench.resource, body)


async def test_what_another_operator_counted_since_this_ones_last_count_is_gone_on_from():
    """It knew of pods that this one has not heard of; and this one, which hears of its count late, has counted on."""
    bench = await placed()
    await bench.run(20)
    another_counts(bench, more=300.0, ago=1.0)
    there = written(bench)["gpuSecondsHeld"]
    bench.now += 16
    await bench.passes.reconcile()  # its write is refused
    await bench.passes.reconcile()
    assert written(bench)["gpuSecondsHeld"] == pytest.approx(there + GPUS * 17, abs=1.5)


async def test_an_end_that_is_counted_is_known_yet_as_the_count_is_adopted_of_one_that_had_not_heard_of_it():
    """It was frozen, and believed for a moment that it leads."""
    bench = await placed()
    await bench.run(20)
    (gone, *_) = (each for each in bench.pods._by_uid.values() if each.pool == "gpu")
    del bench.api.objects[next(path for path in bench.api.objects if path.endswith(f"/pods/{gone.name}"))]
    bench.pods.forget(gone.uid)
    rows = copy.deepcopy(written(bench)["causes"])
    await bench.run(3)
    bench.api.objects[bench.resource]["status"]["pools"][1]["causes"] = rows  # it was there, for all that it knew
    another_counts(bench, more=GPUS * 3.0, ago=0.0)
    there = sum(each["gpuSeconds"] for each in written(bench)["causes"])
    bench.now += 20
    await bench.passes.reconcile()
    await bench.passes.reconcile()
    assert written(bench)["gpuSecondsHeld"] == pytest.approx(there + 20 - 3, abs=1.5)


async def test_an_edit_before_the_first_count_leaves_it_known_when_the_last_one_came():
    bench = await placed()
    await bench.run(20)
    copied, came = ResourceCopy(bench.context, bench.api.objects[bench.resource]), Arrival(1.0, after=0.0)
    writer = StatusWriter(bench.context, copied)
    writer.came = came
    edited = copy.deepcopy(copied.body)
    edited["metadata"] |= {"resourceVersion": "1000000", "annotations": {"by": "somebody"}}
    copied.update(edited)
    assert copied.status_is_newer
    writer.adopt()
    assert (writer.came, writer.ledger) == (came, None)


# --- a leader that leads again ---


@pytest.mark.parametrize("is_on_its_way", [False, True])
async def test_who_leads_again_and_finds_its_own_count_goes_on_from_what_it_knows_beyond_that(is_on_its_way: bool):
    """It has counted on, heard of a pod that had its node before, and could not write that."""
    bench = await placed()
    await bench.run(20)
    own = bench.passes._status_writer.last_count
    assert own is not None
    assert own.told == bench.api.objects[bench.resource]["status"]["countedAt"]
    more = count(Seen((Holder("new", "gpu", "w", 1, bench.now - 9, Cause.STARTING),), bench.now), own.ledger)
    now, before = bench.api.objects[bench.resource], copy.deepcopy(bench.api.objects[bench.resource])
    if is_on_its_way:
        before["status"]["countedAt"] = iso(bench.api.now() - 20)
    copied = ResourceCopy(bench.context, before)
    again = StatusWriter(bench.context, copied)
    again.inherit(Arrival(own.at, own.at), replace(own, ledger=more))
    assert again.ledger is (None if is_on_its_way else more)
    copied.update(now)
    again.adopt()
    assert again.ledger is more
    assert again.last_count == OwnCount(own.told, own.at, more)  # it may end before it writes


async def test_who_goes_on_from_another_operators_count_has_none_of_its_own():
    bench = await placed()
    await bench.run(20)
    writer = bench.passes._status_writer
    assert writer.last_count is not None
    another_counts(bench, more=300.0, ago=1.0)
    bench.passes._copy.update(bench.api.objects[bench.resource])
    assert writer.adopt()
    assert writer.last_count is None
