"""Who writes records, how often and when, on an API server in memory: many clusters, and refusals."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.resource import ANNOTATION_ENDED, Cluster, Identity
from gpudask.api.status import PoolStatus, Status, iso
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import CLUSTER, FairQueue
from gpudask.history.ends import gone_end
from gpudask.history.unfinished import LastStatus
from gpudask.planning.ledger.causes import Gone, Holder
from gpudask.planning.ledger.counting import Ledger, Seen, count
from gpudask.planning.ledger.takeover import Arrival
from gpudask.planning.ledger.totals import PoolCount
from gpudask.planning.observed.pods import Ended, Pod
from gpudask.reconcile.records import store, writer
from gpudask.reconcile.records.pod_logs import PodLogs
from gpudask.reconcile.records.keeper import RecordKeeper
from gpudask.reconcile.records.store import Records
from gpudask.reconcile.records.writer import ClusterRecord
from gpudask.settings import HistorySettings
from tests.builders import a_pool
from tests.clients.fake_api_server import BUSY, Answer, FakeApiServer, refusal
from tests.eventually import eventually_async as eventually
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod
from tests.reconcile.in_memory import Operated
from tests.virtual_time import VirtualPolicy
from tests.virtual_time import now as elapsed

EMPTY = {"metadata": {}, "items": []}  # a list


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualPolicy:
    """Waits pass at once, and take exactly as long as they should."""
    return VirtualPolicy()


@asynccontextmanager
async def recording(**context: Any) -> AsyncIterator[Operated]:
    """Clusters whose records are written."""
    server = FakeApiServer()
    operated = Operated(server, records=Records(server, HistorySettings(), lambda: NOW), **context)
    try:
        yield operated
    finally:
        await operated.stop()


def records_of(operated: Operated) -> Records:
    found = operated.context.records
    assert found is not None
    return found


def a_record(operated: Operated, name: str, namespace: str = "default") -> ClusterRecord:
    """The record of a cluster that nothing was written of yet."""
    return ClusterRecord(operated.context, Identity(name, namespace, f"uid-of-{name}"), "")


def failing(record: ClusterRecord, erred: int = 1) -> ClusterRecord:
    """A record whose cluster's scheduler says that so many tasks failed."""
    record.note_status(cluster(), Status(), demand(erred=erred), Ledger(NOW), {})
    return record


async def write(record: ClusterRecord) -> float:
    """Make the write that is due; the time at which it was made."""
    (work,) = record.work().values()
    await work()
    return elapsed()


async def test_a_namespace_of_many_clusters_whose_tasks_fail_writes_so_often_and_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(store, "_URGENT_PER_SECOND", 20.0, raising=False)
    monkeypatch.setattr(store, "_URGENT_BURST", 5.0, raising=False)
    async with recording() as operated:
        began = elapsed()
        writes = [asyncio.create_task(write(failing(a_record(operated, f"demo-{n}")))) for n in range(45)]
        await asyncio.sleep(0.1)
        other = await write(failing(a_record(operated, "other", namespace="other")))
        times = sorted(await asyncio.gather(*writes))
    assert other - began < 1.5
    assert times[4] - began < 1.5, "a few are written at once"
    assert times[-1] - times[4] > 1.9, "40 more take as long as they have to"


async def test_the_last_writes_of_many_clusters_are_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_URGENT_PER_SECOND", 20.0, raising=False)
    monkeypatch.setattr(store, "_URGENT_BURST", 5.0, raising=False)
    async with recording() as operated:
        began = elapsed()
        await asyncio.gather(*(a_record(operated, f"demo-{n}").close() for n in range(45)))
        assert elapsed() - began > 1.9
        assert len(operated.server.names("gpudaskrecords")) == 45


async def test_of_a_namespace_that_deletes_clusters_faster_than_their_ends_are_written_as_many_wait_as_would_stay(
    monkeypatch: pytest.MonkeyPatch,
):
    """What waits is held in memory, and beyond that the sweep would take it away."""
    monkeypatch.setattr(store, "_URGENT_PER_SECOND", 20.0, raising=False)
    async with recording() as operated:
        most = records_of(operated).settings.per_namespace
        closings = [asyncio.create_task(a_record(operated, f"{n}-demo").close()) for n in range(most + 50)]
        other = asyncio.create_task(a_record(operated, "other", namespace="other").close())
        ended, waiting = await asyncio.wait(closings, timeout=0.5)
        assert most // 2 < len(waiting) <= most
        await asyncio.gather(*closings, other)
        written = len(operated.server.names("gpudaskrecords"))
        assert len(waiting) < written < len(closings), f"{len(ended)} ended at once, some of them unwritten"
        await a_record(operated, "later").close()
        assert len(operated.server.names("gpudaskrecords")) == written + 1


async def test_a_namespace_that_refuses_records_switches_off_its_own_alone():
    async with recording() as operated:
        server, records = operated.server, records_of(operated)
        fault = server.fail("POST", "namespaces/default/gpudaskrecords", refusal(403, "no role", "Forbidden"))
        refused, written = failing(a_record(operated, "demo")), failing(a_record(operated, "demo", namespace="other"))
        with pytest.raises(ApiError):
            await write(refused)
        assert not refused.work()
        assert refused.requeue_after() is None
        assert "namespace default" in records.problem
        await write(written)
        assert server.names("gpudaskrecords") == ["demo-uid-of-d"]
        server.mend(fault)
        server.fail("GET", "/default/gpudaskrecords", Answer(200, EMPTY), name="gpudaskrecords")
        await RecordKeeper(server, records, lambda _: True, lambda: True, ("default",)).sweep("default")
        assert not records.problem
        await write(failing(refused, 2))


async def test_without_the_definition_none_is_written_anywhere():
    async with recording() as operated:
        fault = operated.server.fail("GET", "namespaces/default/gpudaskrecords", Answer(404, "404 page not found"))
        with pytest.raises(ApiError):
            await write(failing(a_record(operated, "demo")))
        assert not failing(a_record(operated, "demo", namespace="other")).work()
        assert "gpudaskrecords" in records_of(operated).problem
        operated.server.mend(fault)
        records_of(operated).set_on("other")
        assert failing(a_record(operated, "demo")).work(), "the definition is there"


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "waits for its turn"])
async def test_a_record_that_cannot_be_written_now_asks_for_no_passes(
    monkeypatch: pytest.MonkeyPatch, *, refused: bool
):
    monkeypatch.setattr(writer, "_INTERVAL_SECONDS", 0.2)
    async with recording() as operated:
        later = refusal(429, "later", "TooManyRequests", **{"Retry-After": "60"})
        operated.server.fail("POST", "gpudaskrecords", later)
        if not refused:
            for _ in range(100):
                records_of(operated).limiter.reserve("default", asyncio.get_running_loop().time())
        operated.fill_caches()
        operated.apply(a_pool())
        looks: list[float] = []
        record = operated.loop().record
        look = record.look
        monkeypatch.setattr(record, "look", lambda **known: (looks.append(elapsed()), look(**known)))
        if refused:
            await eventually(_said(operated, "POST gpudaskrecords demo-uid-of-d"), bool, "a try to write it")
        await asyncio.sleep(1.0)  # for what the first passes have to do
        before = len(looks)
        await asyncio.sleep(2.5)
        assert len(looks) - before <= 1


def _said(operated: Operated, request: str) -> Callable[[], Awaitable[bool]]:
    async def said() -> bool:
        return request in operated.server.log

    return said


DEMO = cluster(a_pool())
RUNS = pod(DEMO, "cpu")
KILLED = replace(RUNS, ended=Ended("OOMKilled", 137, "", NOW))


async def test_a_cluster_that_ends_before_the_log_of_a_container_was_read_has_it(monkeypatch: pytest.MonkeyPatch):
    async with recording() as operated:
        api, record = operated.server, a_record(operated, "demo")

        there = [KILLED]

        async def read_log(namespace: str, name: str, **_: Any) -> str:
            assert CLUSTER.get() == Identity("demo", "default", "uid-of-demo").owner_key
            there.clear()  # else its record is kept open for as long as pods may take
            return f"the words of {name}"

        monkeypatch.setattr(api, "read_log", read_log)
        monkeypatch.setattr(operated.context, "pods_of", lambda _: tuple(there))
        record.look()
        await record.close()
        (path,) = [path for path in api.objects if "gpudaskrecords" in path]
        logs = {row["reason"]: row.get("log") for row in api.objects[path]["record"]["pods"]}
        assert logs["OOMKilled"] == f"the words of {RUNS.name}"


async def test_a_log_whose_reader_was_cancelled_is_there_for_the_next():
    async with recording() as operated:
        came = asyncio.Event()

        async def follow_log(namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
            yield b"its words"
            came.set()
            await asyncio.Event().wait()

        operated.server.follow_log = follow_log  # type: ignore[assignment, method-assign]
        logs = PodLogs(operated.server, operated.context.supervisor, "demo", FairQueue(1, 1))
        logs.follow(RUNS)
        await came.wait()
        end = gone_end(RUNS, NOW)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await logs.complete(end)
        assert (await logs.complete(end)).log == "its words"


async def test_logs_are_followed_over_so_many_connections_and_no_more():
    async with recording() as operated:
        opened: list[str] = []

        async def follow_log(namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
            opened.append(name)
            yield b"its words"
            await asyncio.Event().wait()

        operated.server.follow_log = follow_log  # type: ignore[assignment, method-assign]
        logs = PodLogs(operated.server, operated.context.supervisor, "demo", FairQueue(2, 2))
        pods = [pod(DEMO, "cpu", number) for number in range(4)]
        for each in pods:
            logs.follow(each)
        await asyncio.sleep(0.05)
        assert len(opened) == 2
        assert "many pods" in logs.so_far(gone_end(pods[3], NOW)).message
        await logs.stop()


async def test_a_pod_without_a_log_says_why():
    async with recording() as operated:

        async def follow_log(namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
            for line in () if name == silent.name else (b"its words",):
                yield line
            if name in others:
                await asyncio.Event().wait()

        operated.server.follow_log = follow_log  # type: ignore[assignment, method-assign]
        logs = PodLogs(operated.server, operated.context.supervisor, "demo", FairQueue(100, 100))
        unseen, silent, left_out, *many = (replace(pod(DEMO, "cpu", number), delete_by=NOW) for number in range(19))
        others = {each.name for each in many}
        logs.follow(silent)
        why = {"silent": (await logs.complete(gone_end(silent, NOW))).message}
        for each in (*many, left_out):
            logs.follow(each)
        why["left out"] = (await logs.complete(gone_end(left_out, NOW))).message
        why["unseen"] = (await logs.complete(gone_end(unseen, NOW))).message
        await logs.stop()
    assert why == {
        "silent": "no log: it wrote none",
        "left out": "no log: many pods ended at once",
        "unseen": "no log: the pod was gone at once",
    }


async def test_gpus_of_a_cluster_that_is_gone_count_until_its_pods_are(monkeypatch: pytest.MonkeyPatch):
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    now = [NOW]
    async with recording(clock=lambda: now[0]) as operated:
        record, pods = a_record(operated, "demo"), [holds]
        monkeypatch.setattr(operated.context, "pods_of", lambda _: tuple(pods))
        holder = Holder(holds.uid, "gpu", holds.dask_name, 2, NOW - 100.0, Cause.SPARE)
        counted = count(Seen((holder,), NOW, pools=("gpu",)), Ledger(NOW - 100.0))
        status = Status(pools=[counted.of("gpu").in_status(PoolStatus(name="gpu"))])
        record.note_status(of, status, None, counted, {})
        now[0] = NOW + 10.0  # of the cause that it had
        closing = asyncio.create_task(record.close())
        await eventually(_said(operated, "POST gpudaskrecords demo-uid-of-d"), bool, "its first write")
        now[0] = NOW + 40.0
        pods.clear()
        record.pod_gone(holds, NOW + 30.0)
        await closing
        (path,) = [path for path in operated.server.objects if "gpudaskrecords" in path]
        written = operated.server.objects[path]["record"]
    (pool,), (ended,) = written["pools"], written["pods"]
    for causes in (pool["causes"], ended["gpuSeconds"]):
        seconds = {item["cause"]: item["gpuSeconds"] for item in causes}
        assert (seconds["spare"], seconds["draining"]) == (20.0, 40.0)
    assert pool["gpus"] == 2


async def test_who_pays_is_recorded_under_the_whole_name():
    name = f"{'d' * 200}.example.com/{'n' * 63}"
    async with recording(attribution=(name,)) as operated:
        record = a_record(operated, "demo")
        for erred in (1, 2):  # the second write goes on with what it reads back
            record.note_status(cluster(), Status(), demand(erred=erred), Ledger(NOW), {"labels": {name: "lab"}})
            await write(record)
        (path,) = [path for path in operated.server.objects if "gpudaskrecords" in path]
        assert operated.server.objects[path]["record"]["cluster"]["attribution"] == {name: "lab"}


async def test_all_records_are_swept_over_however_much_news_there_is():
    async with recording() as operated:
        swept: list[str] = []

        async def records(namespace: str) -> AsyncIterator[Any]:
            swept.append(namespace)
            for _ in ():
                yield {}

        operated.server.records = records  # type: ignore[assignment, method-assign]
        keeper = RecordKeeper(
            operated.server,
            records_of(operated),
            lambda _: True,
            lambda: True,
            (),
            interval_seconds=0.3,
            soon_seconds=0.02,
        )
        began = elapsed()
        running = asyncio.create_task(keeper.run())
        for _ in range(60):
            records_of(operated).on_write("busy")
            await asyncio.sleep(0.02)
        running.cancel()
        seconds = elapsed() - began
        assert swept.count("busy") > 5
        assert 2 <= swept.count("") <= seconds / 0.3 + 1


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("finds", ["a write", "a sweep"])
async def test_an_api_server_that_does_not_know_records_or_rights_for_a_moment_stops_none_for_long(
    finds: str, status: int
):
    async with recording() as operated:
        server, records = operated.server, records_of(operated)
        lists = "gpudaskrecords" if finds == "a sweep" else "demo-"
        server.fail("GET", "/gpudaskrecords", Answer(status, "it has just started"), name=lists, times=1)
        server.fail("GET", "/gpudaskrecords", Answer(200, EMPTY), name="gpudaskrecords")
        keeper = RecordKeeper(server, records, lambda _: True, lambda: True, ("default",))
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(12)  # the first sweep
        if finds == "a write":
            with pytest.raises(ApiError):
                await write(failing(a_record(operated, "demo")))
        assert records.problem
        await asyncio.sleep(30)  # the next sweep over all comes after 600
        assert not records.problem
        running.cancel()


async def test_a_namespace_that_refuses_all_writes_is_not_looked_at_for_each():
    async with recording() as operated:
        records, looks = records_of(operated), []
        records.on_write = looks.append
        operated.server.fail("POST", "/gpudaskrecords", Answer(403, "by a policy"), name="")
        for _ in range(3):
            with pytest.raises(ApiError):
                await write(failing(a_record(operated, "demo")))
            records.set_on("default")  # as a sweep does, which may read
        assert looks == ["default"]


@pytest.mark.parametrize("status", [403, 404])
async def test_where_records_cannot_be_had_they_are_asked_for_once_more_and_then_rarely(status: int):
    async with recording() as operated:
        server, records = operated.server, records_of(operated)
        asked = server.fail("GET", "/gpudaskrecords", Answer(status, "404 page not found"))
        keeper = RecordKeeper(server, records, lambda _: True, lambda: True, ("default",))
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(500)
        assert asked.met == 2
        await asyncio.sleep(600)
        assert asked.met == 3
        running.cancel()


@pytest.mark.parametrize("fails", ["the list", "the look at the cluster"])
async def test_a_sweep_in_which_a_request_failed_is_made_again_soon(fails: str):
    async with recording() as operated:
        record = a_record(operated, "demo")
        record.note_status(cluster(), Status(), demand(erred=1), Ledger(NOW), {})
        await write(record)
        (path,) = [path for path in operated.server.objects if "gpudaskrecords" in path]

        async def records(_namespace: str) -> AsyncIterator[Any]:
            await operated.server.request("GET", "/apis/gpudask.dev/v1alpha1/namespaces/default/gpudaskrecords/of-all")
            yield operated.server.objects[path]

        operated.server.records = records  # type: ignore[assignment, method-assign]
        operated.server.fail("GET", "gpudaskrecords", Answer(200, {}), name="of-all")
        missed = "gpudaskrecords" if fails == "the list" else "gpudaskclusters"
        fault = operated.server.fail("GET", missed, BUSY, times=1, name="of-all" if fails == "the list" else "demo")
        operated.server.faults.insert(0, operated.server.faults.pop())
        keeper = RecordKeeper(operated.server, records_of(operated), lambda _: False, lambda: True, ("default",))
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(60)  # the next sweep over all comes after 600
        assert fault.met == 1
        assert ANNOTATION_ENDED in operated.server.objects[path]["metadata"]["annotations"]
        running.cancel()


async def test_what_the_pods_held_is_told_of_before_the_end_that_nobody_saw_is_noted():
    """The time at which a record was written says what is new since then."""
    async with recording() as operated:
        record = a_record(operated, "demo")
        record.note_status(cluster(), Status(), demand(erred=1), Ledger(NOW), {})
        await write(record)
        (path,) = [path for path in operated.server.objects if "gpudaskrecords" in path]
        before = copy.deepcopy(operated.server.objects[path])

        async def records(_namespace: str) -> AsyncIterator[Any]:
            yield before

        operated.server.records = records  # type: ignore[assignment, method-assign]
        closed: list[Identity] = []
        keeper = RecordKeeper(
            operated.server,
            records_of(operated),
            lambda _: False,
            lambda: True,
            ("default",),
            knows_more=lambda _: True,
            close_anew=lambda gone, _: closed.append(gone),
        )
        await keeper.sweep("default")
        assert [each.name for each in closed] == ["demo"]
        assert operated.server.objects[path] == before


class Closing:
    """The end of a cluster's record, whose pods are gone when a test says so, by a clock that stands."""

    def __init__(self, operated: Operated, pods: list[Pod], now: list[float]) -> None:
        self.operated, self.pods, self.now = operated, pods, now
        self.record = a_record(operated, "demo")

    async def begin(self) -> asyncio.Task[None]:
        """Close the record, and wait until it was written once."""
        closing = asyncio.create_task(self.record.close())
        await eventually(_said(self.operated, "POST gpudaskrecords demo-uid-of-d"), bool, "its first write")
        return closing

    def count(self, of: Cluster, since: float | None = None) -> None:
        """Count that the pods hold two GPUs each, in pool `gpu`, since then, or since they got their nodes."""
        holders = tuple(
            Holder(each.uid, "gpu", each.dask_name, 2, since or each.placed, Cause.SPARE) for each in self.pods
        )
        self.note(of, count(Seen(holders, NOW, pools=("gpu",)), Ledger(since or NOW - 200.0)))

    def note(self, of: Cluster, counted: Ledger) -> None:
        """Note a count, as a pass does when it is made."""
        status = Status(pools=[counted.of("gpu").in_status(PoolStatus(name="gpu"))])
        self.record.note_status(of, status, None, counted, {})

    async def begin_and_die(self, of: Cluster, since: float | None = NOW) -> None:
        """Count as `count` does; begin to close the record, and come no further."""
        self.count(of, since)
        closing = await self.begin()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)

    async def tell_whole(self) -> tuple[LastStatus, Pod]:
        """Tell the end of a cluster all of which was seen: its last status, and its pod, which went 5 s later."""
        last = a_last_status("gpu", 180.0, NOW - 10.0, ended=NOW)
        holds = replace(pod(cluster(gpu_pool(count=2)), "gpu"), gpus=2, placed=NOW - 100.0, started=0.0)
        await self.record.close_anew([(holds, NOW + 5.0)], None, last)
        return last, holds

    def gone(self, last: Pod, at: float) -> None:
        """The pod is gone at a time, and was last seen so."""
        self.pod_that_went = last
        self.now[0] = max(self.now[0], at)
        self.pods[:] = [pod for pod in self.pods if pod.uid != last.uid]
        self.record.pod_gone(last, at)

    @property
    def body(self) -> dict[str, Any]:
        """What is in the record."""
        (path,) = [path for path in self.operated.server.objects if "gpudaskrecords" in path]
        return dict(self.operated.server.objects[path]["record"])

    @property
    def rows(self) -> dict[str, Any]:
        """The rows of the ends, by pod."""
        return {row["pod"]: row for row in self.body["pods"]}

    async def written(self) -> dict[str, Any]:
        return self.rows

    async def holds_gpus(self) -> bool:
        """Whether the record has counted pods that are there."""
        return self.record._holds_gpus


@asynccontextmanager
async def closing_of(monkeypatch: pytest.MonkeyPatch, *pods: Pod) -> AsyncIterator[Closing]:
    now, there = [NOW], list(pods)
    async with recording(clock=lambda: now[0]) as operated:
        monkeypatch.setattr(operated.context, "pods_of", lambda _: tuple(there))
        yield Closing(operated, there, now)


def following(operated: Operated, words: dict[str, list[bytes]], ends: asyncio.Event) -> None:
    """Let logs be followed: each container writes what it has once the cluster has ended, and then it ends."""

    async def follow_log(namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
        first, last = words[name]
        yield first
        await ends.wait()
        yield last

    operated.server.follow_log = follow_log  # type: ignore[assignment, method-assign]


async def test_pods_that_outlive_their_cluster_are_recorded_when_they_end_with_all_that_they_said(
    monkeypatch: pytest.MonkeyPatch,
):
    ends = asyncio.Event()
    async with closing_of(monkeypatch, RUNS) as closing:
        following(closing.operated, {RUNS.name: [b"working", b"\nthe last line"]}, ends)
        done = await closing.begin()
        ends.set()
        last = replace(RUNS, delete_by=NOW + 30, started=0.0, ended=Ended("Error", 143, "", NOW + 20.0))
        closing.gone(last, NOW + 21.0)
        await done
    row = closing.rows[RUNS.name]
    assert (row["reason"], row["exitCode"], row["log"]) == ("ClusterDeleted", 143, "working\nthe last line")
    assert row["ended"] == iso(NOW + 20.0, to="seconds")


async def test_an_operator_that_ends_follows_no_log_however_little_time_it_has(monkeypatch: pytest.MonkeyPatch):
    """Else they are read over connections that are closed."""
    others = [pod(DEMO, "cpu", number) for number in (1, 2)]
    following, slow = set(), asyncio.Event()

    async def follow_log(namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
        following.add(name)
        try:
            await asyncio.Event().wait()
        finally:
            following.discard(name)
            await slow.wait()  # its connection is slow to close
        yield b""

    async def number() -> int:
        return len(following)

    async with closing_of(monkeypatch, RUNS, *others) as closing:
        closing.operated.server.follow_log = follow_log  # type: ignore[assignment, method-assign]
        for each in (RUNS, *others):
            closing.record._logs.follow(each)
        await eventually(number, lambda of: of == 3, "all are followed")
        stopping = asyncio.create_task(closing.record.stop())
        await eventually(number, lambda of: of < 3, "it has begun to end them")
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await eventually(number, lambda of: of == 0, "none is followed")
        slow.set()


async def test_of_a_pod_whose_log_cannot_be_followed_the_end_is_known_all_the_same(monkeypatch: pytest.MonkeyPatch):
    async with closing_of(monkeypatch, RUNS) as closing:
        done = await closing.begin()
        closing.gone(replace(RUNS, delete_by=NOW + 30), NOW + 21.0)
        await done
    row = closing.rows[RUNS.name]
    assert (row["reason"], row["ended"]) == ("ClusterDeleted", iso(NOW + 21.0, to="seconds"))


async def test_pods_that_end_one_after_another_are_written_as_they_end(monkeypatch: pytest.MonkeyPatch):
    other = pod(DEMO, "cpu", 1)
    async with closing_of(monkeypatch, RUNS, other) as closing:
        done = await closing.begin()
        closing.gone(RUNS, NOW + 5.0)
        ended = iso(NOW + 5.0, to="seconds")
        await eventually(closing.written, lambda rows: rows[RUNS.name]["ended"] == ended, "the end of the first")
        assert not done.done()
        closing.gone(other, NOW + 100.0)
        await done
    assert closing.rows[other.name]["ended"] == iso(NOW + 100.0, to="seconds")


async def test_a_pod_that_is_longer_in_ending_is_waited_for_as_long_as_it_may_take(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "_LAST_LOGS_SECONDS", 0.5)
    async with closing_of(monkeypatch, replace(RUNS, grace_seconds=10.0)) as closing:
        done = await closing.begin()
        await asyncio.sleep(2.0)  # longer than others are waited for
        closing.gone(RUNS, NOW + 21.0)
        await done
    assert closing.rows[RUNS.name]["ended"] == iso(NOW + 21.0, to="seconds")


async def test_a_pod_whose_node_does_not_confirm_its_end_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "_AFTER_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(writer, "_LAST_LOGS_SECONDS", 0.5)
    async with closing_of(monkeypatch, RUNS) as closing:
        done = await closing.begin()
        closing.pods[:] = [replace(RUNS, delete_by=NOW + 30.0)]
        closing.now[0] = NOW + 45.0
        await done
    row = closing.rows[RUNS.name]
    assert row["reason"] == "NodeLost"
    assert "does not confirm" in row["message"]


async def test_the_next_operator_goes_on_with_an_end_that_was_not_written_whole(monkeypatch: pytest.MonkeyPatch):
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    went, drained = replace(holds, uid="went", name="went"), replace(holds, uid="drained", name="drained")
    async with closing_of(monkeypatch, holds, went) as closing:
        following(closing.operated, {each.name: [b"working", b""] for each in (holds, went)}, asyncio.Event())
        await closing.begin_and_die(of)
        assert closing.rows["went"]["log"] == "working"
        assert closing.body["unseenGpus"] == 4, "who leads next may never see their end"

        closing.gone(replace(went, started=0.0, ended=Ended("Error", 143, "", NOW + 10.0)), NOW + 10.0)
        gone = [(closing.pod_that_went, NOW + 10.0), (drained, NOW - 50.0)]
        closing.record = a_record(closing.operated, "demo")
        closing.now[0] = NOW + 20.0
        second = asyncio.create_task(closing.record.close_anew(gone, 60.0))
        await eventually(closing.written, lambda rows: "exitCode" in rows["went"], "its exit")
        closing.gone(replace(holds, started=0.0), NOW + 30.0)
        await second
    rows = closing.rows
    assert (rows["went"]["ended"], rows["went"]["log"]) == (iso(NOW + 10.0, to="seconds"), "working")
    assert rows[holds.name]["ended"] == iso(NOW + 30.0, to="seconds")
    assert "unseenGpus" not in closing.body
    assert "drained" not in rows, "it went while the cluster was there, and was told of then or never"
    (pool,) = closing.body["pools"]
    assert sum(item["gpuSeconds"] for item in pool["causes"]) == 2 * 10.0 + 2 * 30.0


def a_last_status(name: str, gpu_seconds: float, at: float, ended: float | None = None) -> LastStatus:
    """What another operator had counted of a pool's two GPUs at a time, as it was seen to come."""
    row = PoolCount({Cause.SPARE: gpu_seconds}, gpus={Cause.SPARE: 2}).in_status(PoolStatus(name=name))
    status = Status(pools=[row], counted_at=iso(at))
    return LastStatus.of({"status": status.model_dump(mode="json", by_alias=True)}, Arrival(at, at), ended)


def gpu_seconds(record: dict[str, Any]) -> float:
    """Of its one pool."""
    (pool,) = record["pools"]
    assert pool["name"] == "gpu"
    assert not pool.get("causesBefore")
    return sum(item.get("gpuSeconds", 0.0) for item in pool["causes"])


async def test_an_operator_that_had_not_counted_yet_goes_by_the_last_status(monkeypatch: pytest.MonkeyPatch):
    holds = replace(pod(cluster(gpu_pool(count=2)), "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch, holds) as closing:
        closing.record.inherit(a_last_status("gpu", 180.0, NOW - 10.0), [])
        done = await closing.begin()
        closing.gone(replace(holds, started=0.0), NOW + 30.0)
        await done
    assert gpu_seconds(closing.body) == pytest.approx(180.0 + 2 * 40.0)


async def test_an_end_that_was_seen_by_who_did_not_lead_is_counted_by_the_last_status_and_is_known(
    monkeypatch: pytest.MonkeyPatch,
):
    holds = replace(pod(cluster(gpu_pool(count=2)), "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch) as closing:
        closing.record.note_status(cluster(), Status(), demand(erred=1), Ledger(NOW - 200.0), {})
        await write(closing.record)  # before the pool had anything
        closing.now[0] = NOW + 60.0
        last = a_last_status("gpu", 180.0, NOW - 10.0, ended=NOW + 15.0)
        for _ in range(2):  # as another one would once more, who saw the same
            record = a_record(closing.operated, "demo")
            await record.close_anew([(replace(holds, started=0.0), NOW + 20.0)], 60.0, last)
            assert record.is_closed
    assert gpu_seconds(closing.body) == pytest.approx(180.0 + 2 * 30.0)
    assert closing.body["ended"] == iso(NOW + 15.0, to="seconds")
    assert "EndedUnseen" not in {event["reason"] for event in closing.body.get("events", ())}


async def test_a_cluster_that_went_before_anything_was_written_of_it_has_a_record(monkeypatch: pytest.MonkeyPatch):
    """Who led was killed, and this operator has seen all."""
    holds = replace(pod(cluster(gpu_pool(count=2)), "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch) as closing:
        closing.now[0] = NOW + 60.0
        last = replace(a_last_status("gpu", 180.0, NOW - 10.0, ended=NOW + 15.0), created=iso(NOW - 120.0))
        await closing.record.close_anew([(replace(holds, started=0.0), NOW + 20.0)], None, last)
    assert gpu_seconds(closing.body) == pytest.approx(180.0 + 2 * 30.0)
    assert closing.body["cluster"]["created"] == iso(NOW - 120.0)
    assert list(closing.rows) == [holds.name]


async def test_an_end_that_was_told_whole_stays_whoever_tells_it_again(monkeypatch: pytest.MonkeyPatch):
    """As one whose watch was behind, and to whom the cluster was there for longer."""
    async with closing_of(monkeypatch) as closing:
        last, _ = await closing.tell_whole()
        told = gpu_seconds(closing.body)
        closing.now[0] = NOW + 60.0
        await a_record(closing.operated, "demo").close_anew([], None, last)
    assert gpu_seconds(closing.body) == told == 180.0 + 2 * 15.0
    assert "unseenGpus" not in closing.body


async def test_a_leader_to_whom_a_cluster_is_there_for_longer_writes_over_no_end(monkeypatch: pytest.MonkeyPatch):
    """Its watch is behind: the cluster goes later, and its pod later still."""
    async with closing_of(monkeypatch) as closing:
        last, holds = await closing.tell_whole()
        told = gpu_seconds(closing.body)
        closing.record = a_record(closing.operated, "demo")
        closing.pods[:] = [holds]
        closing.now[0] = NOW + 60.0
        closing.record.inherit(last, ())
        second = asyncio.create_task(closing.record.close())
        await eventually(closing.holds_gpus, bool, "it knows of the pod")
        await asyncio.sleep(5.0)
        closing.gone(holds, NOW + 90.0)
        await second
    assert (gpu_seconds(closing.body), closing.body.get("unseenGpus")) == (told, None)


@pytest.mark.parametrize(("saw_it_come", "told"), [(True, 300.0), (False, 400.0)])
async def test_an_end_in_part_is_replaced_by_who_has_seen_all_and_by_nobody_else(
    saw_it_come: bool, told: float, monkeypatch: pytest.MonkeyPatch
):
    """The first took a pod for there that was gone; one that came later may have missed others."""
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 200.0)
    async with closing_of(monkeypatch, holds) as closing:
        await closing.begin_and_die(of, since=None)
        assert (gpu_seconds(closing.body), closing.body["unseenGpus"]) == (400.0, 2)
        closing.record = a_record(closing.operated, "demo")
        last = a_last_status("gpu", 220.0, NOW - 90.0, ended=NOW)
        ended = replace(holds, started=0.0, phase="Succeeded", finished_at=NOW - 50.0)
        closing.pods.clear()
        last = last if saw_it_come else replace(last, came=None)
        await closing.record.close_anew([(ended, NOW + 40.0)], None, last)
    assert gpu_seconds(closing.body) == pytest.approx(told, abs=1.0)
    assert closing.body.get("unseenGpus", 0) == (0 if saw_it_come else 2), "a guess that stays says so"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_ended_and_is_not_deleted_yet_counts_until_its_end(
    phase: str, monkeypatch: pytest.MonkeyPatch
):
    """As while a volume is unmounted, or because it failed."""
    of = cluster(gpu_pool(count=2))
    stays = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    goes = replace(stays, uid="goes", name="goes", dask_name="goes")
    async with closing_of(monkeypatch, stays, goes) as closing:
        closing.count(of)
        done = await closing.begin()
        ended = replace(stays, started=0.0, phase=phase, finished_at=NOW + 4.0)
        closing.pods[:] = [ended, goes]
        closing.gone(replace(goes, started=0.0, phase="Succeeded", finished_at=NOW + 39.0), NOW + 40.0)
        await asyncio.sleep(5)
        closing.gone(ended, NOW + 44.0)
        await done
    assert gpu_seconds(closing.body) == pytest.approx(2 * 104.0 + 2 * 139.0)


async def test_a_pod_whose_end_was_seen_late_counts_until_its_end(monkeypatch: pytest.MonkeyPatch):
    """As by an operator that was frozen: Kubernetes stamped the end, and then the pod went."""
    holds = replace(pod(cluster(gpu_pool(count=2)), "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch) as closing:
        closing.record.note_status(cluster(), Status(), demand(erred=1), Ledger(NOW - 200.0), {})
        await write(closing.record)
        closing.now[0] = NOW + 60.0
        last = a_last_status("gpu", 180.0, NOW - 10.0, ended=NOW + 15.0)
        ended = replace(holds, started=0.0, phase="Succeeded", finished_at=NOW + 20.0)
        await a_record(closing.operated, "demo").close_anew([(ended, NOW + 45.0)], 60.0, last)
    assert gpu_seconds(closing.body) == pytest.approx(180.0 + 2 * 30.0)


async def test_a_pod_whose_end_is_told_after_it_was_written_that_it_is_there_counts_until_its_end(
    monkeypatch: pytest.MonkeyPatch,
):
    """The watch is behind as the cluster goes."""
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch, holds) as closing:
        closing.count(of)
        closing.now[0] = NOW + 10.0
        done = await closing.begin()
        assert gpu_seconds(closing.body) == pytest.approx(2 * 110.0)
        ended = replace(holds, started=0.0, phase="Succeeded", finished_at=NOW + 4.0)
        closing.gone(ended, NOW + 14.0)
        await done
    assert gpu_seconds(closing.body) == pytest.approx(2 * 104.0)
    (row,) = closing.body["pods"]
    assert sum(item["gpuSeconds"] for item in row["gpuSeconds"]) == pytest.approx(2 * 104.0)


async def test_a_pod_that_goes_while_the_last_pass_writes_counts_until_then(monkeypatch: pytest.MonkeyPatch):
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    async with closing_of(monkeypatch, holds) as closing:
        holder = Holder(holds.uid, "gpu", holds.dask_name, 2, holds.placed, Cause.SPARE)
        counted = count(Seen((holder,), NOW, pools=("gpu",)), Ledger(NOW - 200.0))
        closing.gone(replace(holds, started=0.0), NOW + 5.0)
        closing.note(of, counted)
        closing.now[0] = NOW + 60.0
        await (await closing.begin())
    assert gpu_seconds(closing.body) == pytest.approx(2 * 105.0)


async def test_pods_whose_end_nobody_saw_were_gone_when_their_cluster_was(monkeypatch: pytest.MonkeyPatch):
    """However long after that somebody tells: what is a guess stays a small one."""
    async with closing_of(monkeypatch) as closing:
        closing.record.note_status(cluster(), Status(), demand(erred=1), Ledger(NOW - 200.0), {})
        await write(closing.record)
        closing.now[0] = NOW + 600.0
        last = a_last_status("gpu", 180.0, NOW - 10.0, ended=NOW + 20.0)
        await a_record(closing.operated, "demo").close_anew([], 60.0, last)
    assert gpu_seconds(closing.body) == pytest.approx(180.0 + 2 * 30.0 / 2)
    assert closing.body["unseenGpus"] == 2, "it says that this is a guess"


@pytest.mark.parametrize("ended", [NOW - 50.0, NOW + 4.0])
async def test_a_pod_that_ended_and_is_there_is_counted_once_by_the_next_operator(
    ended: float, monkeypatch: pytest.MonkeyPatch
):
    """No operator saw the cluster end; what the record has of the pod is what was written before, or nothing."""
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 200.0)
    failed = replace(holds, started=0.0, phase="Failed", finished_at=ended)
    async with closing_of(monkeypatch, holds) as closing:
        if ended < NOW:
            closing.note(of, count(Seen((), NOW, gone=(Gone.of(failed, ended),), pools=("gpu",)), Ledger(NOW - 200.0)))
        else:
            closing.count(of)
        closing.record.note_status(of, closing.record._status, demand(erred=1), closing.record._counted, {})
        await write(closing.record)
        closing.pods[:] = [failed]
        closing.now[0] = NOW + 60.0
        closing.record = a_record(closing.operated, "demo")
        second = asyncio.create_task(closing.record.close_anew([], 60.0))
        await asyncio.sleep(5.0)
        closing.gone(failed, NOW + 70.0)
        await second
    assert gpu_seconds(closing.body) == pytest.approx(2 * (ended - NOW + 200.0))


async def test_an_end_that_nobody_saw_is_not_told_by_who_sees_the_others(monkeypatch: pytest.MonkeyPatch):
    of = cluster(gpu_pool(count=2))
    holds = replace(pod(of, "gpu"), gpus=2, placed=NOW - 100.0)
    went = replace(holds, uid="went", name="went")
    async with closing_of(monkeypatch, holds, went) as closing:
        await closing.begin_and_die(of)
        assert closing.body["unseenGpus"] == 4

        closing.pods[:] = [holds]  # the other one went while no operator ran
        closing.record = a_record(closing.operated, "demo")
        second = asyncio.create_task(closing.record.close_anew([], 60.0))
        await eventually(closing.holds_gpus, bool, "it knows of the one that is there")
        closing.gone(replace(holds, started=0.0), NOW + 30.0)
        await second
    assert closing.body["unseenGpus"] == 2


async def test_what_was_never_written_is_not_taken_for_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writer, "TRIES", 1)
    async with closing_of(monkeypatch) as closing:
        closing.operated.server.fail("POST", "gpudaskrecords", refusal(500, "etcd is slow", "InternalError"))
        await closing.record.close()
        assert not closing.record.is_closed


async def test_an_end_that_the_next_operator_cannot_read_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    async with closing_of(monkeypatch, RUNS) as closing:
        first = await closing.begin()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        fault = closing.operated.server.fail("GET", "gpudaskrecords", refusal(500, "etcd is slow", "InternalError"))
        closing.record = a_record(closing.operated, "demo")
        second = asyncio.create_task(closing.record.close_anew((), 60.0))
        await asyncio.sleep(0.1)
        assert not second.done()
        closing.operated.server.mend(fault)
        closing.pods.clear()
        closing.gone(RUNS, NOW + 30.0)
        await second
        assert closing.body["ended"]
