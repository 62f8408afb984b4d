"""What became of clusters, from the command line: lists, one record, the last lines of pods that are gone."""

from __future__ import annotations

from gpudask.api import Json

import json
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import SpecCluster

from gpudask.cli import output
from gpudask.cli.output import Exit
from tests.cli.doctor_builders import a_deployment, found, only_fault, well
from gpudask.cli.doctor.facts import Level
from gpudask.cli.doctor.rights import HISTORY
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.server import Server
from tests.cli.invoke import invoke
from tests.cli.test_completion import PATIENT, complete
from tests.kubecluster import fake_server
from tests.kubecluster.conftest import add_scheduler, dask, server  # noqa: F401 - fixtures

FakeServer = fake_server.FakeServer


def a_pod(name: str = "demo-gpu-worker-0", **fields: Any) -> Json:
    row = {"pod": name, "uid": f"uid-{name}", "pool": "gpu", "node": "node-1", "ended": "2027-01-15T08:10:00Z"}
    return row | {"reason": "OOMKilled", "exitCode": 137, "log": "loading\nout of memory"} | fields


def a_record(name: str = "demo", began: str = "2027-01-15T08:00:00Z", **record: Any) -> Json:
    uid = f"{began[11:13]}{began[14:16]}0000"
    return {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskRecord",
        "metadata": {"name": f"{name}-{uid}", "namespace": "lab", "labels": {"gpudask.dev/cluster": name}},
        "record": {"cluster": {"name": name, "uid": f"{uid}-1111"}, "began": began, "ended": "2027-01-15T09:00:00Z"}
        | {
            "pools": [{"name": "gpu", "causes": [{"cause": "working", "gpuSeconds": 1800.0}]}],
            "pods": [a_pod()],
            "tasks": [{"prefix": "inc", "tasks": 3, "seconds": 1.5}],
            "errors": [{"at": "2027-01-15T08:05:00Z", "key": "inc-1", "exception": "ValueError('no')", "worker": "w"}],
            "events": [{"at": "2027-01-15T08:01:00Z", "reason": "ScaledUp", "message": "pool gpu: 0 -> 1 pods"}],
        }
        | record,
    }


@pytest.fixture
def kept(server: FakeServer) -> FakeServer:  # noqa: F811 - a fixture
    """Records of two clusters, of which none is there any more; of one there was an earlier one."""
    server.clusters.clear()
    server.records = [a_record(began="2027-01-15T07:00:00Z", pods=[]), a_record(), a_record("other", pods=[])]
    return server


def test_the_list_has_a_row_for_each(kept: FakeServer):
    lines = invoke("history").stdout.splitlines()
    assert lines[0].split() == ["NAME", "CLUSTER", "BEGAN", "ENDED", "PODS", "ERRORS", "GPU-HOURS"]
    rows = {row.split()[0]: row.split()[1:] for row in lines[1:]}
    ended = "2027-01-15T09:00:00Z"
    assert rows["demo-08000000"] == ["demo", "2027-01-15T08:00:00Z", ended, "1", "1", "0.50"]
    assert list(rows)[-1] == "demo-07000000", "the last that began first"
    assert "lab" in invoke("history", "-A").stdout.split()


def test_one_has_its_ends_its_ledger_its_tasks_errors_and_events(kept: FakeServer):
    result = invoke("history", "demo")
    assert result.exit_code == 0
    for words in (
        "demo (08000000-1111), record demo-08000000",
        "ended 2027-01-15T09:00:00Z",
        "gpu    working   1800",
        "OOMKilled   137    out of memory",
        "inc      3       0       1.5",
        "ValueError('no')",
        "pool gpu: 0 -> 1 pods",
    ):
        assert words in result.stdout, result.stdout
    assert "demo-07000000" in result.stderr, "the earlier one of this name is named"


@pytest.mark.parametrize(("unseen", "said"), [(2, True), (0, False), (-1, False), ("many", False)])
def test_ends_that_are_not_told_are_named(kept: FakeServer, unseen: object, said: bool):
    kept.records = [a_record(unseenGpus=unseen)]
    assert ("the end of pods with 2 GPUs is not told (yet)" in invoke("history", "demo").stdout) is said


def test_an_earlier_one_is_shown_by_its_own_name(kept: FakeServer):
    assert "record demo-07000000" in invoke("history", "demo-07000000").stdout


def test_programs_get_the_objects(kept: FakeServer):
    assert json.loads(invoke("history", "demo", "-o", "json").stdout) == a_record()
    assert len(yaml.safe_load(invoke("history", "-o", "yaml").stdout)["items"]) == 3
    assert invoke("history", "other", "-o", "name").stdout == "gpudaskrecord.gpudask.dev/other-08000000\n"


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("number", [0, 1, 60])
def test_programs_get_the_same_text_of_all_records_as_of_one_list(kept: FakeServer, form: str, number: int):
    """They are written as they come, and read by whoever reads `kubectl get -o`."""
    kept.records = [a_record(f"demo{each}", report="a\u2028b\nc") for each in range(number)]
    assert invoke("history", "-o", form).stdout == output.listed(kept.records, form)


@pytest.mark.program
def test_names_alone_are_asked_for_where_names_are_wanted(kept: FakeServer):
    lines = invoke("history", "-o", "name").stdout.splitlines()
    assert lines == [
        f"gpudaskrecord.gpudask.dev/{name}" for name in ("demo-07000000", "demo-08000000", "other-08000000")
    ]
    assert complete("gpudask history ", PATIENT)[0] == ["demo", "other"]
    assert kept.records_listed == 0


@pytest.mark.parametrize("form", ["json", "yaml", "name"])
def test_of_records_that_may_not_be_listed_nothing_is_printed(kept: FakeServer, form: str):
    kept.records = None
    result = invoke("history", "-o", form)
    assert (result.exit_code, result.stdout) == (Exit.NOT_FOUND, "")


def test_a_list_that_breaks_off_is_no_json_and_fails(kept: FakeServer, monkeypatch: pytest.MonkeyPatch):
    async def each(_self: Any, **_fields: Any) -> AsyncGenerator[Json]:
        yield a_record()
        raise KubeClusterError("cannot go on", reason="the list is too old", next_step="Try again", status=410)

    monkeypatch.setattr(Server, "each_record", each)
    result = invoke("history", "-o", "json")
    assert result.exit_code == Exit.FAILED
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.stdout)


def test_a_name_without_a_record_is_not_found_and_the_others_are_named(kept: FakeServer):
    result = invoke("history", "unknown")
    assert result.exit_code == Exit.NOT_FOUND
    assert "there are: demo, other" in result.stderr


def test_without_the_definition_it_is_said_what_to_do(kept: FakeServer):
    kept.records = None
    result = invoke("history")
    assert result.exit_code == Exit.NOT_FOUND
    assert "crds/gpudaskrecords.yaml" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "-A"], "leave out -A"),
        (["-o", "xml"], "'xml' is not one of json, yaml, name"),
        (["--performance-report"], "to a file"),
        (["demo", "--performance-report"], "to a file"),
        (["De mo"], "no cluster's name"),
    ],
)
def test_what_makes_no_sense_is_refused(kept: FakeServer, arguments: list[str], words: str):
    result = invoke("history", *arguments)
    assert (result.exit_code, words in result.stderr) == (Exit.USAGE, True), result.stderr


def test_a_forged_record_hurts_no_terminal(kept: FakeServer):
    forged: Json = {"record": {"pods": [a_pod(log="\x1b[2Jgone", reason=["x"]), 7], "pools": 3, "errors": {}}}
    kept.records = [a_record() | forged]
    result = invoke("history", "demo")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert invoke("history").exit_code == 0
    kept.records = [a_record() | {"record": "nothing"}]
    assert invoke("history", "demo").exit_code == 0


@pytest.mark.parametrize("of", ["gpu", "demo-gpu-worker-0"])
def test_a_forged_end_of_a_pod_hurts_no_terminal(kept: FakeServer, of: str):
    nameless = {"pool": "gpu", "log": "of nobody"}
    forged = a_pod("\x1b]0;owned\x07x", log="\x1b[2Jgone")
    silent = a_pod("\x1b[2Jy", log="", message="\x1b[2J\nerror: forged")
    kept.records = [a_record(pods=[nameless, forged, silent, a_pod(log=["no", "text"], reason="\x1b[2Jz")])]
    result = invoke("logs", "demo", of, "--previous")
    assert "\x1b" not in result.stdout + result.stderr
    assert "KeyError" not in result.stderr
    assert "\nerror: forged" not in result.stderr
    assert ("gone" in result.stdout) is (of == "gpu")


def test_a_log_keeps_its_lines_as_they_were(kept: FakeServer):
    log = "\n".join(f"{number:3}  | {'x' * 20}" for number in range(100))
    kept.records = [a_record(pods=[a_pod(log=log)])]
    assert invoke("logs", "demo-gpu-worker-0", "--previous").stdout == log.lstrip("\n") + "\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "-A"],
        ["history", "-o", "json"],
        ["history", "-o", "yaml"],
        ["logs", "demo", "gpu", "--previous"],
        ["report", "demo", "-o", "-"],
    ],
)
def test_of_many_records_no_two_are_held_at_once(
    kept: FakeServer, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    """What is kept of each is small: a namespace may have thousands of 200 kB."""
    held: list[weakref.ref[Any]] = []

    class Body(dict[str, Any]):
        """A body that can be referred to weakly."""

    async def each(_self: Any, **_fields: Any) -> AsyncGenerator[Json]:
        for number in range(20):
            assert sum(body() is not None for body in held) <= 1
            body = Body(a_record(f"demo{number}"))
            held.append(weakref.ref(body))
            yield body

    monkeypatch.setattr(Server, "each_record", each)
    assert invoke(*arguments).exit_code == 0
    assert len(held) >= 20


@pytest.mark.parametrize(
    "arguments",
    [["demo", "demo-gpu-worker-0"], ["demo", "gpu"], ["demo-gpu-worker-0"], ["demo", "pod/demo-gpu-worker-0"]],
)
def test_the_last_lines_of_a_pod_are_there_after_its_cluster(kept: FakeServer, arguments: list[str]):
    result = invoke("logs", *arguments, "--previous")
    assert (result.exit_code, result.stdout) == (0, "loading\nout of memory\n"), result.stderr
    assert invoke("logs", *arguments, "--previous", "--tail", "1").stdout == "out of memory\n"


def test_the_last_end_of_a_pod_counts(kept: FakeServer):
    kept.records = [a_record(pods=[a_pod(log="first"), a_pod(log="second", restarted=True)])]
    assert invoke("logs", "demo", "demo-gpu-worker-0", "--previous").stdout == "second\n"


def test_where_there_is_no_log_it_is_said_why(kept: FakeServer):
    kept.records = [a_record(pods=[a_pod(log="", reason="NodeLost", message="no log: its node does not answer")])]
    result = invoke("logs", "demo", "demo-gpu-worker-0", "--previous")
    assert result.exit_code == Exit.FAILED
    assert "NodeLost; no log: its node does not answer" in result.stderr


def test_a_container_before_a_restart_is_the_api_servers_first(server: FakeServer):  # noqa: F811
    pod = fake_server.pod("demo-gpu-worker-0", "worker", **{"gpudask.dev/pool": "gpu"})
    server.pods.append(pod)
    server.records = [a_record()]
    server.logs["demo-gpu-worker-0 previous"] = ["from the node"]
    assert invoke("logs", "demo", "demo-gpu-worker-0", "--previous").stdout == "from the node\n"
    del server.logs["demo-gpu-worker-0 previous"]
    assert invoke("logs", "demo", "demo-gpu-worker-0", "--previous").stdout == "loading\nout of memory\n"


def test_a_pod_of_nobody_is_not_found(kept: FakeServer):
    result = invoke("logs", "nobody", "--previous")
    assert result.exit_code == Exit.NOT_FOUND
    assert "nobody" in result.stderr


@pytest.mark.program
def test_tab_offers_the_clusters_that_left_a_record(kept: FakeServer):
    assert complete("gpudask history ", PATIENT)[0] == ["demo", "other"]


def test_a_report_needs_a_task_stream(server: FakeServer, tmp_path: Path):  # noqa: F811
    result = invoke("history", "demo", "--performance-report", "-o", str(tmp_path / "report.html"))
    assert result.exit_code == Exit.FAILED
    assert "spec.history.performanceReport: true" in result.stderr


@pytest.mark.dask
def test_a_report_of_a_live_cluster_is_written(server: FakeServer, dask: SpecCluster, tmp_path: Path):  # noqa: F811
    pytest.importorskip("bokeh", reason="the report is drawn by bokeh")
    add_scheduler(server, dask, "demo-scheduler-00000")
    server.clusters["demo"]["spec"]["history"] = {"performanceReport": True}
    file = tmp_path / "report.html"
    result = invoke("history", "demo", "--performance-report", "-o", str(file))
    assert result.exit_code == 0, result.stderr
    assert "Dask Performance Report" in file.read_text()


def test_the_doctor_says_that_the_definition_is_missing():
    fault = only_fault(well(deployments=[a_deployment(history=True)], records_served=False))
    assert (fault.check, fault.level) == ("records", Level.WARNING)
    assert "gpudaskrecords" in fault.text


def test_the_doctor_is_silent_where_no_history_is_wanted():
    assert found(well(records_served=False)) == []


def test_the_doctor_knows_an_operator_without_these_rights():
    fault = only_fault(well(deployments=[a_deployment(history=True)], operator_may_not=[("", *HISTORY[-1:])]))
    assert (fault.level, "logs" in fault.text) == (Level.WARNING, True)
