"""What stays of a cluster, on a real API server: its pods' ends, its events and sizes, and its own end."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpudask.api.reasons import Cause
from gpudask.api.resource import API_VERSION, PLURAL, RECORD_PLURAL, Identity, record_name
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.history.record import Notes, begun, gone_on, rendered
from gpudask.reconcile.operator import Operator
from gpudask.reconcile.records import keeper, writer
from gpudask.settings import HistorySettings, Settings
from tests.builders import a_pool
from tests.conftest import CRD
from tests.planning.builders import gpu_pool
from tests.reconcile.fake_dask import FakeScheduler
from tests.reconcile.stage import Stage, defined, eventually, operating, staged_alone, stays

pytestmark = pytest.mark.api

SOON = 60.0  # seconds; a record is written within two, on a machine that is not busy


@pytest.fixture(autouse=True)
def without_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_INTERVAL_SECONDS", 2.0)
    # `__init__`'s defaults, which the operator does not set
    monkeypatch.setitem(keeper.RecordKeeper.__init__.__kwdefaults__, "interval_seconds", 1.0)
    monkeypatch.setitem(keeper.RecordKeeper.__init__.__kwdefaults__, "soon_seconds", 0.2)


class Logs(dict[str, str]):
    """Logs by pod; `previous/` and a pod for those of the container before. `followed`: pods whose log is followed."""

    def __init__(self) -> None:
        super().__init__()
        self.followed: set[str] = set()

    async def are_followed(self) -> set[str]:
        return self.followed


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    """The logs that nodes would give."""
    found = Logs()

    async def read_log(self: Kubernetes, namespace: str, name: str, *, previous: bool, **_: Any) -> str:
        key = f"previous/{name}" if previous else name
        if key not in found:
            raise ApiError(500, "InternalError", "no route to host", f"GET {key}")
        return found[key]

    async def follow_log(self: Kubernetes, namespace: str, name: str, **_: Any) -> AsyncIterator[bytes]:
        if name not in found:
            raise ApiError(500, "InternalError", "no route to host", f"FOLLOW {name}")
        found.followed.add(name)
        yield found[name].encode()
        await asyncio.sleep(0.2)
        yield b"\nthe last line"

    monkeypatch.setattr(Kubernetes, "read_log", read_log)
    monkeypatch.setattr(Kubernetes, "follow_log", follow_log)
    return found


class Records:
    """The records in a stage's namespace."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{RECORD_PLURAL}"

    async def all(self) -> dict[str, Json]:
        """By name."""
        page = await self._stage.api.request("GET", self._path)
        return {item["metadata"]["name"]: item for item in page["items"]}

    async def of(self, made: Json) -> Json:
        """The record of the cluster `made`; empty where there is none."""
        return dict((await self.all()).get(record_name(identity(made)), {}).get("record", {}))

    async def put(self, body: Json) -> None:
        """Write one as anybody may."""
        name = body["metadata"]["name"]
        kind = "application/apply-patch+yaml"
        query = {"fieldManager": "somebody", "force": "true"}
        await self._stage.api.request("PATCH", f"{self._path}/{name}", query=query, body=body, content_type=kind)

    async def pod(self, made: Json, name: str, **wanted: Any) -> Json:
        """The row of a pod's end, once it is there and has what is `wanted`."""

        def rows(record: Json) -> list[Json]:
            found = [row for row in record.get("pods", ()) if row["pod"] == name]
            return [row for row in found if all(row.get(key) == value for key, value in wanted.items())]

        found = await eventually(lambda: self.of(made), rows, f"{name}: {wanted}", SOON)
        return rows(found)[-1]


@pytest.fixture
def records(stage: Stage) -> Records:
    return Records(stage)


def identity(made: Json) -> Identity:
    metadata = made["metadata"]
    return Identity(metadata["name"], metadata["namespace"], metadata["uid"])


async def terminated(stage: Stage, name: str, *, code: int, reason: str, message: str = "", restarts: int = 1) -> None:
    """The container of a pod ended, and runs again."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ended = {"exitCode": code, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}
    container = {"name": "dask", "ready": True, "restartCount": restarts, "image": "i", "imageID": "i"}
    states = {"state": {"running": {"startedAt": now}}, "lastState": {"terminated": ended}}
    await set_status(stage, name, {"containerStatuses": [container | states]})


async def set_status(stage: Stage, name: str, status: Json) -> None:
    path = f"/api/v1/namespaces/{stage.namespace}/pods/{name}/status"
    kind = "application/merge-patch+json"
    await stage.api.request("PATCH", path, body={"status": status}, content_type=kind)


async def test_a_container_out_of_memory_is_explained(stage: Stage, operator: Operator, records: Records):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    await terminated(stage, "demo-cpu-worker-0", code=137, reason="OOMKilled", message="the last line")
    row = await records.pod(made, "demo-cpu-worker-0")
    assert (row["reason"], row["exitCode"], row["log"]) == ("OOMKilled", 137, "the last line")
    assert (row["restarted"], row["node"], row["pool"]) == (True, "node-1", "cpu")


async def test_an_exit_that_the_kubelet_kept_no_words_of_has_the_log_of_the_container_before(
    stage: Stage, operator: Operator, records: Records, logs: Logs
):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    logs["previous/demo-cpu-worker-0"] = "what it said before"
    await terminated(stage, "demo-cpu-worker-0", code=0, reason="Completed")
    row = await records.pod(made, "demo-cpu-worker-0")
    assert (row["reason"], row.get("exitCode"), row["log"]) == ("Completed", 0, "what it said before")


async def test_a_pod_that_a_person_deletes_is_followed_to_its_last_line(
    stage: Stage, operator: Operator, records: Records, logs: Logs
):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    logs["demo-cpu-worker-0"] = "working"
    stage.kubelet.keeps.add("demo-cpu-worker-0")  # for its grace period: one that is gone at once has no log
    await stage.delete("pods", "demo-cpu-worker-0")
    await eventually(logs.are_followed, lambda names: "demo-cpu-worker-0" in names, "its log is followed", SOON)
    stage.kubelet.keeps.clear()
    stage.kubelet.look_again()
    row = await records.pod(made, "demo-cpu-worker-0")
    assert (row["reason"], row["log"]) == ("Deleted", "working\nthe last line")


async def test_one_that_is_gone_at_once_says_that_it_has_no_log(
    stage: Stage, operator: Operator, records: Records, logs: Logs
):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    await stage.delete("pods", "demo-cpu-worker-0", gracePeriodSeconds=0)
    row = await records.pod(made, "demo-cpu-worker-0")
    assert row["reason"] == "Deleted"
    assert row["message"].startswith("no log: ")


async def test_an_evicted_pod_is_explained_though_the_operator_deletes_it(
    stage: Stage, operator: Operator, records: Records, logs: Logs
):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    logs["demo-cpu-worker-0"] = "before the eviction"
    why = "The node was low on resource: memory."
    await set_status(stage, "demo-cpu-worker-0", {"phase": "Failed", "reason": "Evicted", "message": why})
    row = await records.pod(made, "demo-cpu-worker-0")
    assert (row["reason"], row["log"]) == ("Evicted", "before the eviction")
    assert why in row["message"]


async def test_a_drained_pod_says_so(stage: Stage, operator: Operator, records: Records):
    made = await stage.apply(gpu_pool(idle="1s"))
    scheduler = await stage.scheduler()
    await scheduler.want(1, GPU=1)
    # One that did not run yet would be cancelled.
    await eventually(stage.workers, lambda workers: workers == [1], "its worker")
    await scheduler.want(0)
    row = await records.pod(made, "demo-gpu-worker-0")
    assert row["reason"] == "Drained"
    record = await eventually(lambda: records.of(made), lambda r: r.get("samples"), "samples", SOON)
    reasons = {event["reason"] for event in record["events"]}
    assert "ScaledUp" in reasons
    assert {pool["name"] for pool in record["pools"]} == {"gpu"}


async def test_the_record_says_who_pays_and_for_what(stage: Stage, records: Records):
    async with operating(replace(stage.settings, attribution=("team", "example.com/project"))):
        made = await stage.apply(gpu_pool(idle="1s"))
        path = f"/apis/{API_VERSION}/namespaces/{stage.namespace}/{PLURAL}/demo"
        labels = {"metadata": {"labels": {"team": "lab", "other": "x"}}}
        await stage.api.request("PATCH", path, body=labels, content_type="application/merge-patch+json")
        scheduler = await stage.scheduler()
        await scheduler.want(1, GPU=1)

        async def phases() -> list[str]:
            return [pod["status"].get("phase", "") for pod in await stage.pods(pool="gpu")]

        await stage.becomes(phases, ["Running"])  # without a node it holds nothing
        await scheduler.want(0)
        row = await records.pod(made, "demo-gpu-worker-0")
        assert row["reason"] == "Drained"
        assert sum(item["gpuSeconds"] for item in row["gpuSeconds"] if item["cause"] in set(Cause)) > 0
        record = await eventually(
            lambda: records.of(made), lambda r: r.get("pools") and r["pools"][0].get("causes"), "its ledger", SOON
        )
    assert record["cluster"]["attribution"] == {"team": "lab"}
    assert {item["cause"] for item in record["pools"][0]["causes"]} <= set(Cause)


async def test_a_cluster_that_is_deleted_leaves_its_end_and_its_pods(
    stage: Stage, operator: Operator, records: Records, logs: Logs
):
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    logs["demo-cpu-worker-0"] = "to the end"
    await stage.delete_cluster()
    row = await records.pod(made, "demo-cpu-worker-0", log="to the end\nthe last line")
    assert row["reason"] == "ClusterDeleted"
    record = await records.of(made)
    assert record["ended"]
    assert record["cluster"]["created"] == made["metadata"]["creationTimestamp"]
    assert len(record["pods"]) == 2, "and the scheduler"


async def test_the_next_operator_goes_on_with_the_record_and_tells_nothing_twice(
    stage: Stage, records: Records, logs: Logs
):
    async with operating(stage.settings):
        made = await stage.apply(a_pool(replicas=2))
        await stage.shows("Ready", "True AllReady")
        logs["previous/demo-cpu-worker-0"] = "first words"
        await terminated(stage, "demo-cpu-worker-0", code=0, reason="Completed")
        await records.pod(made, "demo-cpu-worker-0", log="first words")
    logs["previous/demo-cpu-worker-0"] = "other words"
    async with operating(stage.settings):
        await terminated(stage, "demo-cpu-worker-1", code=3, reason="Error", message="third")
        await records.pod(made, "demo-cpu-worker-1")
        rows = (await records.of(made))["pods"]
        assert [(row["pod"], row["log"]) for row in rows] == [
            ("demo-cpu-worker-0", "first words"),
            ("demo-cpu-worker-1", "third"),
        ]


async def test_a_cluster_that_ends_while_no_operator_watches_gets_its_end_later(stage: Stage, records: Records):
    async with operating(stage.settings):
        made = await stage.apply(a_pool(replicas=1))
        await eventually(lambda: records.of(made), bool, "a record", SOON)
    await stage.delete_cluster()
    other = await stage.apply(a_pool(), name="other")
    assert not (await records.of(made)).get("ended")
    async with operating(stage.settings):
        record = await eventually(lambda: records.of(made), lambda r: r.get("ended"), "an end", SOON)
        assert record["events"][-1]["reason"] == "EndedUnseen"
        found = await eventually(lambda: records.of(other), bool, "the other's record", SOON)
        assert "ended" not in found


@pytest.mark.parametrize("is_ended", [True, False], ids=["its end was written", "nobody saw its end"])
async def test_the_next_operator_tells_of_the_pods_that_outlive_a_cluster(
    stage: Stage, records: Records, logs: dict[str, str], *, is_ended: bool
):
    async with operating(stage.settings):
        made = await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
        await eventually(lambda: records.of(made), bool, "a record", SOON)
        if is_ended:
            await stage.delete_cluster()
            await eventually(lambda: records.of(made), lambda r: r.get("ended"), "an end", SOON)
    if not is_ended:
        await stage.delete_cluster()
    logs["demo-cpu-worker-0"] = "said to nobody"
    async with operating(stage.settings):
        await records.pod(made, "demo-cpu-worker-0", log="said to nobody\nthe last line")
        await stage.delete("pods", "demo-cpu-worker-0")
        record = await records.of(made)
        assert record["ended"]
        assert {row["reason"] for row in record["pods"]} == {"ClusterDeleted"}


async def test_a_task_that_fails_is_written_soon_with_its_traceback(
    stage: Stage, operator: Operator, records: Records, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "_INTERVAL_SECONDS", 1000.0)  # it is not waited for
    made = await stage.apply(a_pool(replicas=1))
    scheduler = await stage.scheduler()
    scheduler.history = {
        "tasks": [{"prefix": "inc", "tasks": 3, "erred": 1, "seconds": 1.5}],
        "errors": [{"age_seconds": 1.0, "key": "inc-1", "exception": "E('x')", "traceback": "a\n  b", "worker": "w"}],
    }
    scheduler.erred = 1
    await scheduler.say()
    record = await eventually(lambda: records.of(made), lambda r: r.get("errors"), "the error", SOON)
    (error,) = record["errors"]
    assert (error["key"], error["exception"], error["traceback"], error["worker"]) == ("inc-1", "E('x')", "a\n  b", "w")
    assert record["tasks"] == [{"prefix": "inc", "tasks": 3, "erred": 1, "seconds": 1.5}]


async def test_a_hostile_scheduler_leaves_a_record_all_the_same(stage: Stage, operator: Operator, records: Records):
    made = await stage.apply(a_pool(replicas=1))
    scheduler = await stage.scheduler()
    scheduler.history = {"tasks": {"a": 1}, "errors": [{"traceback": "x" * 10_000}] * 100, "scheduler_id": 7}
    scheduler.erred = 5
    await scheduler.say()
    record = await eventually(lambda: records.of(made), lambda r: r.get("errors"), "errors", SOON)
    assert len(record["errors"]) <= 20
    assert "tasks" not in record


async def test_a_performance_report_is_written_before_the_operator_ends_a_cluster_that_asks_for_one(
    stage: Stage, operator: Operator, records: Records
):
    made = await stage.apply(a_pool(), history={"performanceReport": True}, idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    await eventually(lambda: _stream(scheduler), bool, "the scheduler is told to keep the task stream", SOON)
    scheduler.unused_seconds = 11.0
    await scheduler.say()
    record = await eventually(lambda: records.of(made), lambda r: r.get("ended"), "its end", 2 * SOON)
    (name,) = scheduler.reports
    assert name.startswith("demo-")
    assert record["report"] == f"/reports/{name}.html in the scheduler's pod, 7 bytes"


async def test_a_graph_that_comes_while_the_report_is_written_calls_off_the_end_and_the_next_end_has_one_again(
    stage: Stage, operator: Operator, records: Records, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "_REPORT_AGAIN_SECONDS", 0.5, raising=False)
    made = await stage.apply(a_pool(), history={"performanceReport": True}, idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    await eventually(lambda: _stream(scheduler), bool, "the scheduler is told to keep the task stream", SOON)
    scheduler.on_report = lambda: setattr(scheduler, "unused_seconds", 0.0)
    scheduler.unused_seconds = 11.0
    await scheduler.say()
    await eventually(lambda: _reports(scheduler), bool, "a report", SOON)
    await stays(lambda: _deletion(stage), "none", 2.0)
    scheduler.on_report = lambda: None
    scheduler.unused_seconds = 11.0
    await scheduler.say()
    await eventually(lambda: records.of(made), lambda r: r.get("ended"), "its end", 2 * SOON)
    assert len(scheduler.reports) == 2


async def _deletion(stage: Stage) -> str:
    try:
        return str((await stage.cluster())["metadata"].get("deletionTimestamp", "none"))
    except ApiError as error:
        return str(error)


async def _reports(scheduler: FakeScheduler) -> list[str]:
    return scheduler.reports


async def _stream(scheduler: FakeScheduler) -> bool:
    return bool(scheduler.desired.get("task_stream"))


async def test_none_is_asked_for_where_nobody_wants_one(stage: Stage, operator: Operator, records: Records):
    made = await stage.apply(a_pool(), idle={"deleteAfter": "10s"})
    scheduler = await stage.scheduler()
    scheduler.unused_seconds = 11.0
    await scheduler.say()
    record = await eventually(lambda: records.of(made), lambda r: r.get("ended"), "its end", 2 * SOON)
    assert (scheduler.reports, record.get("report")) == ([], None)
    assert "task_stream" not in scheduler.desired
    assert "IdleTooLong" in {event["reason"] for event in record["events"]}


def ended_record(stage: Stage, number: int, seconds_ago: float, keep_seconds: float = 1e6) -> Json:
    cluster = Identity("gone", stage.namespace, f"{number:08}-1111-1111-1111-111111111111")
    ended = iso(datetime.now(UTC).timestamp() - seconds_ago, to="seconds")
    record = gone_on(begun(cluster, "", 1.0), Notes(ended=ended), 1.0)
    return rendered(record, cluster, keep_seconds=keep_seconds)


async def test_records_go_when_they_are_old_or_too_many(stage: Stage, records: Records):
    for number in range(4):
        await records.put(ended_record(stage, number, 100.0 * number))
    await records.put(ended_record(stage, 8, 100.0, keep_seconds=60.0))
    await records.put(ended_record(stage, 9, 3 * 3600.0))
    history = HistorySettings.model_validate({"keep": "2h", "perNamespace": 3})
    async with operating(replace(stage.settings, history=history)):
        await stage.becomes(
            lambda: _names(records), {f"gone-{n:08}" for n in range(3)}, "the last three that ended", seconds=SOON
        )


async def _names(records: Records) -> set[str]:
    return set(await records.all())


async def test_a_forged_record_is_replaced_and_decides_nothing(stage: Stage, operator: Operator, records: Records):
    made = await stage.apply(a_pool(replicas=1))
    await eventually(lambda: records.of(made), bool, "a record", SOON)
    cluster = identity(made)
    forged = rendered(begun(cluster, "", 1.0), cluster, keep_seconds=60.0)
    forged["record"] = {"cluster": {"name": "demo", "uid": "somebody else's"}, "pods": [{"pod": "forged"}]}
    await records.put(forged)
    await terminated(stage, "demo-cpu-worker-0", code=1, reason="Error", message="mine")
    await records.pod(made, "demo-cpu-worker-0", log="mine")
    record = await records.of(made)
    assert record["cluster"]["uid"] == cluster.uid
    assert [row["pod"] for row in record["pods"]] == ["demo-cpu-worker-0"]


async def test_what_the_api_server_refuses_is_written_later(
    stage: Stage, operator: Operator, records: Records, monkeypatch: pytest.MonkeyPatch
):
    refusals = [ApiError(429, "TooManyRequests", "later", "PUT"), ApiError(409, "Conflict", "changed", "PUT")]
    put = Kubernetes.put_record

    async def put_record(self: Kubernetes, body: Json) -> Json:
        if refusals:
            raise refusals.pop()
        return await put(self, body)

    monkeypatch.setattr(Kubernetes, "put_record", put_record)
    made = await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    await terminated(stage, "demo-cpu-worker-0", code=1, reason="Error", message="kept")
    await records.pod(made, "demo-cpu-worker-0", log="kept")
    assert not refusals


async def test_switched_off_nothing_is_written(stage: Stage, records: Records):
    settings: Settings = replace(stage.settings, history=HistorySettings(enabled=False))
    async with operating(settings):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
        await terminated(stage, "demo-cpu-worker-0", code=1, reason="Error", message="lost")
        await asyncio.sleep(3.0)  # longer than a record takes
    assert await records.all() == {}


async def test_without_the_definition_it_works_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with defined("no-records", CRD) as own:
        async with staged_alone(own, monkeypatch) as stage, operating(stage.settings) as operator:
            await stage.apply(a_pool(replicas=2))
            await stage.shows("Ready", "True AllReady")

            async def notes() -> str:
                return "; ".join(operator.notes())

            found = await eventually(notes, lambda text: "gpudaskrecords" in text, "a note on its health page", SOON)
            assert "crds/gpudaskrecords.yaml" in found
            await terminated(stage, "demo-cpu-worker-0", code=1, reason="Error")
            await stage.delete("pods", "demo-cpu-worker-1", gracePeriodSeconds=0)
            await eventually(stage.names, lambda names: len(names) == 2, "the pod is made again")
            await stage.shows("Ready", "True AllReady")
            own.define(CRD.with_name("gpudaskrecords.yaml"))
            records = Records(stage)
            await eventually(records.all, bool, "a record, once the definition is there", 2 * SOON)
