"""Messages: reasons, versions that differ, how pools look, what is discovered."""

import contextlib
import copy
import pickle
import re
from collections.abc import Callable
import warnings
from typing import Any

import pytest
import rich
from distributed import Client
from rich.console import Console

from gpudask import KubeCluster, KubeClusterError, discover
from gpudask.kubecluster.scheduler import versions as agreement
from gpudask.kubecluster.display import as_html, as_text, pool_rows
from gpudask.kubecluster.display import Progress
from gpudask.kubecluster.errors import waits_for, why_pod_waits
from gpudask.kubecluster.timing import Timing
from gpudask.kubecluster.scheduler.versions import disagreement
from tests.kubecluster import fake_server as fake


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"image": "me/dask:1", "state": state}]}


PODS: dict[str, tuple[dict[str, Any], str]] = {
    "no node": (
        {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
        "no node can take it: 0/3 nodes are available",
    ),
    "a pull": (waiting("ContainerCreating"), "its node pulls image me/dask:1 or prepares its volumes"),
    "a pull that fails": (waiting("ErrImagePull", "not found"), "ErrImagePull: not found"),
    "a crash": (waiting("CrashLoopBackOff", "back-off 10s"), "CrashLoopBackOff: back-off 10s"),
    "not ready": (
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
        "it runs, but does not answer yet",
    ),
    "ready": ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, ""),
    "evicted": ({"phase": "Failed", "message": "The node was low on memory"}, "The node was low on memory"),
}


@pytest.mark.parametrize(("status", "words"), PODS.values(), ids=PODS)
def test_why_a_pod_waits(status: dict[str, Any], words: str):
    assert why_pod_waits({"status": status}) == words


def test_what_a_cluster_waits_for_is_told_by_part():
    body = fake.cluster(
        "demo",
        "cpu",
        "gpu",
        pools=[
            {"name": "cpu", "desired": 1, "ready": 1},
            {"name": "gpu", "desired": 2, "ready": 0, "message": "exceeded quota: gpus"},
        ],
    )
    pod = fake.scheduler_pod("demo-scheduler-0")

    assert waits_for(body, [pod]) == ["pool gpu: 0 of 2 desired pods are ready, exceeded quota: gpus"]
    assert waits_for(fake.cluster("demo", "cpu"), []) == [
        "scheduler: no pod yet: the operator has reported nothing yet: is it running?"
    ]


def versions(python: str = "3.11.7.final.0", **packages: str) -> dict[str, Any]:
    return {"host": {"python": python}, "packages": {"distributed": "2026.7.1", "dask": "2026.7.1"} | packages}


def test_equal_versions_are_no_disagreement():
    assert disagreement(versions(), versions(), {"a": versions()}) is None


def test_what_differs_names_all_three():
    found = disagreement(versions(), versions(distributed="2026.8.0"), {"a": versions(distributed="2026.8.0")})

    assert found is not None
    assert found.table == "  distributed: client 2026.7.1, scheduler 2026.8.0, workers 2026.8.0"
    assert not found.fatal


def test_another_minor_version_of_python_is_fatal_and_another_patch_is_none():
    other, patch = versions("3.12.1.final.0"), versions("3.11.9.final.0")

    minor = disagreement(versions(), other, {"a": other})
    assert minor is not None
    assert minor.fatal
    assert minor.table == "  python: client 3.11.7, scheduler 3.12.1, workers 3.12.1"
    assert disagreement(versions(), patch, {}) is None


def test_graphs_that_the_other_side_cannot_read_are_fatal_whoever_is_older():
    before, after = versions(distributed="2025.3.1"), versions(distributed="2025.4.0")

    for client, scheduler in ((before, after), (after, before)):
        found = disagreement(client, scheduler, {"a": scheduler})
        assert found is not None
        assert found.fatal == "a distributed before 2025.4 and a later one cannot read each other's graphs"
    found = disagreement(after, versions(), {})
    assert found is not None
    assert not found.fatal


def test_what_differs_between_scheduler_and_workers_is_told_apart():
    outside = disagreement(versions(toolz="1.0"), versions(toolz="1.1"), {"a": versions(toolz="1.1")})
    inside = disagreement(versions(toolz="1.0"), versions(toolz="1.0"), {"a": versions(toolz="1.1")})

    assert outside is not None
    assert inside is not None
    assert (outside.inside, inside.inside) == (False, True)


def test_a_package_that_one_lacks_and_nobody_has_to_have_is_no_disagreement():
    assert disagreement(versions(), versions(pandas="2.0"), {}) is None


def test_another_python_ends_the_connection_with_the_image_to_use(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agreement, "own", lambda: versions("3.9.1.final.0"))

    with pytest.raises(KubeClusterError, match=r"(?s)python: client 3.9.1, scheduler .*Run this program in image i,"):
        KubeCluster.from_name("demo")


def test_another_package_warns(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    mine = agreement.own()
    mine["packages"] = dict(mine["packages"]) | {"distributed": "2025.12.0"}
    monkeypatch.setattr(agreement, "own", lambda: mine)

    with pytest.warns(UserWarning, match="distributed: client 2025.12.0, scheduler "):
        KubeCluster.from_name("demo").close()


def test_the_warning_names_the_command_that_makes_versions_equal():
    mine = versions(distributed="2025.12.0", dask="2025.12.0", numpy="1.26.0")
    theirs = versions(numpy="2.4.6", toolz="1.1")
    found = disagreement(mine, theirs, {})
    assert found is not None
    assert found.command == "pip install dask==2026.7.1 distributed==2026.7.1 toolz==1.1 numpy==2.4.6"
    hostile = disagreement(versions(toolz="1.0"), versions(toolz="1.0; rm -rf ~"), {})
    assert hostile is not None
    assert hostile.command == "", "a scheduler says what it likes"


def test_a_program_is_warned_once_and_by_one_alone(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    mine = agreement.own()
    mine["packages"] = dict(mine["packages"]) | {"toolz": "0.1"}
    monkeypatch.setattr(agreement, "own", lambda: mine)
    monkeypatch.setattr("distributed.client.version_module.get_versions", lambda: mine)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with KubeCluster.from_name("demo") as cluster, Client(cluster):
            pass
    told = [str(item.message) for item in caught if "ersions" in str(item.message)]
    assert len(told) == 1, told
    assert "pip install toolz==" in told[0]


def test_where_scheduler_and_workers_differ_the_cure_is_one_image_for_them(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
):
    demo.clusters["demo"]["spec"]["pools"][1]["image"] = "other"
    mine = agreement.own()
    others = mine | {"packages": dict(mine["packages"]) | {"toolz": "0.1"}}
    monkeypatch.setattr(agreement, "disagreement", lambda *_: disagreement(mine, mine, {"a": others}))

    with pytest.warns(UserWarning, match=r"give the scheduler and all pools images .* \(now image i or other\)"):
        KubeCluster.from_name("demo").close()


@pytest.mark.parametrize(("image", "error"), [("other", KubeClusterError), ("i", None)])
def test_workers_that_may_have_another_image_are_compared_when_they_have_come(
    demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch, image: str, error: type[Exception] | None
):
    demo.clusters["demo"]["spec"]["pools"][1]["image"] = image
    with KubeCluster.from_name("demo") as cluster:
        monkeypatch.setattr(agreement, "own", lambda: versions("3.9.1.final.0"))
        with pytest.raises(error, match=r"python: client 3\.9\.1") if error else contextlib.nullcontext():
            cluster.wait_for_workers(1, pool="gpu", timeout=120)


def test_who_wants_no_comparison_gets_none(demo: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agreement, "own", lambda: versions("3.9.1.final.0"))

    KubeCluster.from_name("demo", compare_versions=False).close()


def test_pools_look_as_they_are_set():
    body = fake.cluster("demo", "cpu")
    body["spec"]["pools"] = [
        {"name": "cpu", "replicas": 3},
        {"name": "gpu", "gpu": {"count": 2}, "autoscale": {"min": 0, "max": 8}},
    ]
    body["spec"]["overrides"] = [{"pool": "cpu", "replicas": 5, "by": "<alice>"}]
    rows = pool_rows(body, {"tcp://1": {"name": "demo-cpu-worker-0-aaaaa"}})

    assert as_text(rows) == "cpu=1, gpu=0"
    html = as_html(rows)
    assert "1 worker, 5 pods (set by &lt;alice&gt;)" in html
    assert "0 workers, 0 to 8 pods, 2 GPU a pod" in html
    assert not re.search("<alice>", html)


def test_before_it_is_read_there_is_nothing_to_show():
    assert as_html(pool_rows({}, {})) == ""


def test_progress_on_no_terminal_says_each_line_once():
    said: list[str] = []
    with Progress("cluster demo", Timing(progress_seconds=0), quiet=False, write=said.append) as progress:
        progress.show(["a"])
        progress.show(["a", "b"])

    assert said == ["cluster demo: a", "cluster demo: b"]


def test_progress_in_a_notebook_without_ipywidgets_is_lines(monkeypatch: pytest.MonkeyPatch):
    console = Console(force_jupyter=True)
    monkeypatch.setattr(rich, "get_console", lambda: console)
    monkeypatch.setattr("gpudask.kubecluster.display.find_spec", lambda _: None)
    said: list[str] = []
    with Progress("cluster demo", Timing(progress_seconds=0), quiet=False, write=said.append) as progress:
        progress.show(["a"])

    assert said == ["cluster demo: a"]


def test_progress_on_a_terminal_is_a_panel_that_takes_words_as_they_are(monkeypatch: pytest.MonkeyPatch):
    console = Console(force_terminal=True, record=True, width=100)
    monkeypatch.setattr(rich, "get_console", lambda: console)
    said: list[str] = []
    with Progress("cluster demo", Timing(progress_seconds=0), quiet=False, write=said.append) as progress:
        progress.show(["0/3 nodes [bold]are available"])

    assert "0/3 nodes [bold]are available" in console.export_text()
    assert said == []


async def test_clusters_are_discovered(server: fake.FakeServer):
    server.clusters["other"] = fake.cluster("other", "cpu")

    assert [found async for found in discover()] == [("demo", KubeCluster), ("other", KubeCluster)]


async def test_where_nothing_can_be_listed_nothing_is_discovered(server: fake.FakeServer):
    server.forbidden.add("GET gpudaskclusters")

    assert [found async for found in discover()] == []


class NotThereError(KubeClusterError, TimeoutError):
    """As a program may catch it that knows Python's own error alone."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no {name}", reason="why", next_step="Do", status=404)


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],  # noqa: S301
    ids=["copy", "deep", "pickle"],
)
@pytest.mark.parametrize(
    "error", [KubeClusterError("no x", reason="why", next_step="Do", unanswered=True), NotThereError("x")]
)
def test_an_error_passes_to_another_process_whole(error: KubeClusterError, again: Callable):
    passed = again(error)
    assert (type(passed), str(passed), vars(passed)) == (type(error), str(error), vars(error))
    assert passed.reason == "why"
