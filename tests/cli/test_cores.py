"""The pure parts of commands: sizes, goals, rows, losses, which pods' logs, the line of Python."""

from gpudask.api import Json

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from gpudask.api.reasons import Cause
from gpudask.cli import cluster_tables
from gpudask.cli.cost.causes import CAUSES, UNKNOWN
from gpudask.cli.commands import scale
from gpudask.cli.commands.connect import client_line
from gpudask.cli.commands.delete import loss
from gpudask.cli.output import CliError, Exit
from gpudask.cli.commands.wait import Goal, Kind, read_goal
from gpudask.cli.commands.logs import choose
from gpudask.cli.main import verb_first
from gpudask.kubecluster import overrides
from tests.builders import a_manifest, a_pool

NOW = datetime(2026, 12, 1, 18, tzinfo=UTC)


def a_body(
    status: Json | None = None, overrides: list[Json] | None = None, managers: Json | None = None, **spec: Any
) -> Json:
    """A cluster of a CPU and a GPU pool as the API server has it; `managers`: whose overrides are of which pools."""
    body = a_manifest(a_pool("cpu"), a_pool("gpu", gpu={"count": 1}), **spec)
    body["metadata"] |= {
        "namespace": "lab",
        "generation": 3,
        "resourceVersion": "7",
        "creationTimestamp": "2026-12-01T17:58:00Z",
        "managedFields": [
            {
                "manager": manager,
                "fieldsV1": {"f:spec": {"f:overrides": {f'k:{{"pool":"{pool}"}}': {} for pool in pools}}},
            }
            for manager, pools in (managers or {}).items()
        ],
    }
    body["spec"]["overrides"] = overrides or []
    return body | {"status": status or {}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpu=4"], {"gpu": 4}),
        (["gpu=0", "cpu=auto"], {"gpu": 0, "cpu": None}),
        (["3"], {"": 3}),
    ],
)
def test_sizes_are_read(words: list[str], expected: Json):
    assert scale.read_sizes(words) == expected


@pytest.mark.parametrize(
    "words", [["gpu"], ["gpu="], ["gpu=-1"], ["gpu=1.5"], ["gpu=1", "gpu=2"], ["3", "gpu=1"], ["gpu=²"]]
)
def test_what_is_no_size_is_refused(words: list[str]):
    with pytest.raises(CliError) as caught:
        scale.read_sizes(words)
    assert caught.value.code == Exit.USAGE


def test_a_size_is_an_entry_with_who_and_until_when():
    entries = scale.wanted(a_body(), {"gpu": 4}, NOW, "alice")

    assert entries == {"gpu": {"pool": "gpu", "replicas": 4, "by": "alice", "until": "2026-12-01T18:00:00Z"}}
    assert overrides.changed(a_body(), entries, {})["metadata"]["resourceVersion"] == "7"


def test_what_was_set_before_stays_and_what_is_given_back_goes():
    before = [{"pool": "cpu", "replicas": 2, "by": "alice"}, {"pool": "gpu", "replicas": 1, "by": "alice"}]
    body = a_body(overrides=before, managers={"gpudask-client": ["cpu", "gpu"]})

    entries = scale.wanted(body, {"gpu": None}, None, "bob")
    assert overrides.changed(body, entries, {})["spec"]["overrides"] == before[:1]


def test_anothers_size_is_not_called_given_back():
    body = a_body(overrides=[{"pool": "gpu", "replicas": 1}], managers={"argocd": ["gpu"]})

    with pytest.raises(CliError, match="set by argocd as well"):
        scale.wanted(body, {"gpu": None}, None, "bob")


@pytest.mark.parametrize(
    ("asked", "said", "code"),
    [
        ({"gpus": 1}, "has no pool 'gpus'; its pools are cpu, gpu", Exit.NOT_FOUND),
        ({"": 1}, "has several pools", Exit.USAGE),
    ],
)
def test_an_unknown_pool_is_answered_with_those_there_are(asked: Json, said: str, code: Exit):
    with pytest.raises(CliError, match=said) as caught:
        scale.wanted(a_body(), asked, None, "bob")
    assert caught.value.code == code


def test_sizes_are_told_in_words():
    body = a_body(overrides=[{"pool": "gpu", "replicas": 1, "until": "2026-12-01T18:00:00Z"}])

    assert (
        scale.sizes_text(body, {"gpu": 1, "cpu": None})
        == "gpu 1 pod until 2026-12-01T18:00:00Z, cpu as its manifest says"
    )


READY = {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady"}]}
WAITS = {
    "observedGeneration": 3,
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "PodsMissing"},
        {"type": "SchedulerReady", "status": "False", "reason": "SchedulerPending", "message": "pulls its image"},
    ],
    "pools": [
        {"name": "gpu", "workers": 1, "ready": 1, "desired": 4, "message": "0/3 nodes: Insufficient nvidia.com/gpu"}
    ],
}


@pytest.mark.parametrize(
    ("goal", "status", "reached"),
    [
        ("ready", READY, True),
        ("ready", READY | {"observedGeneration": 2}, False),
        ("ready", WAITS, False),
        ("ready", {}, False),
        ("suspended", {"observedGeneration": 3, "phase": "Suspended"}, True),
        ("suspended", {"observedGeneration": 2, "phase": "Suspended"}, False),
        ("suspended", READY, False),
        ("workers=gpu:1", WAITS, True),
        ("workers=gpu:2", WAITS, False),
        ("workers=cpu:0", {}, True),
        ("deleted", READY, False),
    ],
)
def test_when_a_goal_is_reached(goal: str, status: Json, reached: bool):
    assert read_goal(goal).reached(a_body(status)) is reached


@pytest.mark.parametrize(
    ("goal", "status", "why"),
    [
        (
            "ready",
            WAITS,
            (
                "SchedulerReady is False, SchedulerPending: pulls its image;"
                " pool gpu: 1 of 4 desired pods are ready, 0/3 nodes: Insufficient nvidia.com/gpu"
            ),
        ),
        ("ready", {}, "the operator has reported nothing yet: is it running?"),
        (
            "workers=gpu:4",
            WAITS,
            "1 of 4 workers of pool gpu run; 1 of 4 desired pods are ready, 0/3 nodes: Insufficient nvidia.com/gpu",
        ),
        (
            "ready",
            WAITS | {"observedGeneration": 2},
            "the operator has not looked at generation 3 of the cluster yet, only at 2: is it running?",
        ),
        ("suspended", READY, "nobody suspends it: gpudask suspend demo"),
        ("deleted", READY, "nobody deletes it: gpudask delete demo"),
    ],
)
def test_a_wait_says_why(goal: str, status: Json, why: str):
    assert read_goal(goal).why(a_body(status)) == why


def a_pod(name: str, component: str, pool: str = "") -> Json:
    labels = {"dask.org/component": component} | ({"gpudask.dev/pool": pool} if pool else {})
    return {"metadata": {"name": name, "labels": labels}}


def a_waiting_pod(name: str, pool: str = "gpu", **waiting: str) -> Json:
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    return a_pod(name, "worker", pool) | {"status": status}


FULL = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
NOWHERE = a_pod("demo-gpu-worker-2", "worker", "gpu") | {"status": {"phase": "Pending", "conditions": [FULL]}}
PULLS = [a_waiting_pod(f"demo-gpu-worker-{number}", reason="ErrImagePull", message="no x") for number in range(2)]
WORDS_OF_PODS = (
    " pod demo-gpu-worker-0 and 1 more: ErrImagePull: no x;"
    " pod demo-gpu-worker-2: no node can take it: 0/3 nodes are available"
)
MISSING = {"type": "Ready", "status": "False", "reason": "PodsMissing", "message": "pool gpu has 0 of 3 pods"}
SHORT = {"observedGeneration": 3, "conditions": [MISSING], "pools": [{"name": "gpu", "desired": 3}]}


@pytest.mark.parametrize(
    ("goal", "status", "why"),
    [
        (
            "ready",
            SHORT,
            "Ready is False, PodsMissing: pool gpu has 0 of 3 pods;" + WORDS_OF_PODS,
        ),
        (
            "workers=gpu:3",
            {},
            "0 of 3 workers of pool gpu run; the operator has reported nothing yet: is it running?;" + WORDS_OF_PODS,
        ),
        (
            "workers=gpu:3",
            SHORT | {"pools": [{"name": "gpu", "desired": 3, "message": "exceeded quota: q"}]},
            "0 of 3 workers of pool gpu run; 0 of 3 desired pods are ready, exceeded quota: q",
        ),
    ],
)
def test_what_the_operator_does_not_say_of_pods_kubernetes_says(goal: str, status: Json, why: str):
    assert read_goal(goal).why(a_body(status), [*PULLS, NOWHERE]) == why


def test_waiting_for_a_pool_that_is_not_there_ends_at_once():
    with pytest.raises(CliError, match="no pool 'x'; its pools are cpu, gpu"):
        read_goal("workers=x:1").reached(a_body())


@pytest.mark.parametrize("text", ["", "Ready", "workers", "workers=4", "workers=gpu:x", "workers=:4", "ready=1"])
def test_what_is_no_goal_is_refused(text: str):
    with pytest.raises(CliError, match="write ready, suspended, created, deleted, or workers=POOL:N"):
        read_goal(text)
    assert read_goal("workers=gpu:4") == Goal(Kind.WORKERS, "gpu", 4)


def test_a_cluster_is_a_row():
    status = {
        "phase": "Running",
        "reason": "fine",
        "summary": {"cpu": "1/1", "gpu": "0/2", "worked": "63%"},
        "scheduler": {"address": "tcp://x"},
    }
    columns, rows = cluster_tables.cluster_rows([a_body(status)], NOW, wide=True, namespaces=True)

    assert dict(zip(columns, rows[0], strict=True)) == {
        "NAMESPACE": "lab",
        "NAME": "demo",
        "PHASE": "Running",
        "CPU": "1/1",
        "GPU": "0/2",
        "WORKED": "63%",
        "AGE": "2m",
        "ADDRESS": "tcp://x",
        "REASON": "fine",
    }


def test_a_pool_is_a_row_with_its_reasons():
    pool = {
        "name": "gpu",
        "ready": 1,
        "desired": 2,
        "workers": 1,
        "gpusHeld": 2,
        "gpusBusy": 1,
        "sizeSetBy": "autoscale",
    }
    pool |= {"demand": {"waiting": 5, "running": 1}, "reason": "5 tasks wait", "message": "image is pulled"}
    past = {"name": "old", "removed": True, "pods": 0, "gpuSecondsHeld": 100.0}
    columns, rows = cluster_tables.pool_rows([a_body({"pools": [pool, past]})], clusters=True)

    assert rows == [["demo", "gpu", "1/2", "1", "1/2", "5", "1", "autoscale", "5 tasks wait; image is pulled"]]
    assert len(columns) == len(rows[0])


def test_a_pool_with_gpus_is_a_row_with_what_they_do_and_how_much_of_them_worked():
    causes = [
        {"cause": "spare", "gpus": 0, "gpuSeconds": 20.0},
        {"cause": "heldResult", "gpus": 1, "gpuSeconds": 10.0},
        {"cause": "working", "gpus": 2, "gpuSeconds": 60.0},
        {"cause": "newer", "gpus": 3, "gpuSeconds": 10.0},
    ]
    pools = [
        {"name": "cpu", "ready": 1},
        {"name": "gpu", "causes": causes},
        {"name": "big", "causes": [{"cause": "starting", "gpus": 1}]},
        {"name": "old", "causes": [{"cause": "working", "gpuSeconds": 1.0}]},
    ]
    columns, rows = cluster_tables.cause_rows([a_body({"pools": pools}), a_body()], namespaces=True)

    assert columns == ["NAMESPACE", "CLUSTER", "POOL", "WORKED", "GPUS ARE"]
    assert [row[2:] for row in rows] == [
        ["gpu", "60%", "2 working, 1 kept by a result, 3 newer"],
        ["big", "-", "1 starting"],
        ["old", "100%", "-"],
    ]


@pytest.mark.parametrize("junk", [None, 3, "x", [None, 3], [{"cause": 1, "gpus": "2"}], {"cause": "working"}], ids=repr)
def test_junk_for_causes_hides_no_other_pool(junk: object):
    pools = [{"name": "bad", "causes": junk}, {"name": "gpu", "causes": [{"cause": "spare", "gpus": 1}]}]

    assert [row[1:] for row in cluster_tables.cause_rows([a_body({"pools": pools})])[1]] == [["gpu", "-", "1 spare"]]


def test_the_causes_are_those_that_the_operator_writes_and_each_is_explained():
    assert list(CAUSES) == [*Cause, UNKNOWN]
    assert all(cause.meaning.endswith(".") for cause in CAUSES.values())
    assert [name for name, cause in CAUSES.items() if not cause.advice] == [Cause.WORKING, UNKNOWN]


def test_pools_without_any_status_are_rows_too():
    assert [row[0:4] for row in cluster_tables.pool_rows([a_body()])[1]] == [
        ["cpu", "0/0", "0", "-"],
        ["gpu", "0/0", "0", "0/0"],
    ]


NARROW = ["NAMESPACE", "NAME", "PHASE", "AGE", "REASON"]
ROW = ["lab", "a-cluster-of-some-length", "Pending", "119m", "pool gpu has 0 of 3 pods: 0/3 nodes have [a] GPU"]


@pytest.mark.parametrize("width", [200, 80, 60, 40, 10])
def test_a_narrow_terminal_breaks_no_cell_and_drops_no_column(width: int):
    printed = io.StringIO()
    cluster_tables.show(Console(file=printed, width=width), cluster_tables.table(NARROW, [ROW], width))
    head, row, *notes = [line.split() for line in printed.getvalue().splitlines()]

    assert row[:4] == ROW[:4]
    assert head[:4] == NARROW[:4]
    said = " ".join(" ".join([*row[4:], *(word for line in notes for word in line)]).split())
    assert said.replace(" ", "").endswith(ROW[-1].replace(" ", ""))


def test_a_snapshot_has_numbers_where_a_status_has_none():
    pool = {"name": "gpu", "ready": 1, "gpusHeld": 2, "gpusBusy": 1, "demand": {"waiting": 5}}
    shot = cluster_tables.snapshot([a_body({"phase": "Running", "pools": [pool]}), a_body()], NOW, "0.1.0")

    assert (shot["time"], shot["gpusHeld"], shot["gpusBusy"]) == ("2026-12-01T18:00:00Z", 2, 1)
    assert [cluster["phase"] for cluster in shot["clusters"]] == ["Running", ""]
    assert shot["clusters"][0]["pools"] == [pool | {"desired": 0, "pods": 0, "workers": 0}]
    assert {pool["name"]: pool["ready"] for pool in shot["clusters"][1]["pools"]} == {"cpu": 0, "gpu": 0}


def test_troubles_are_the_conditions_that_are_not_as_they_should_be():
    degraded = {"type": "Degraded", "status": "True", "reason": "Frozen", "message": "no word"}

    assert cluster_tables.troubles(a_body({"conditions": [*WAITS["conditions"], degraded]})) == [
        "SchedulerReady is False, SchedulerPending: pulls its image",
        "Degraded is True, Frozen: no word",
    ]
    assert cluster_tables.troubles(a_body(READY)) == []


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2026-12-01T17:59:30Z", "30s"),
        ("2026-12-01T17:58:01Z", "119s"),
        ("2026-12-01T16:01:00Z", "119m"),
        ("2026-11-30T12:00:00Z", "30h"),
        ("2026-11-01T00:00:00Z", "30d"),
        ("2026-12-01T18:00:05Z", "0s"),
        ("", ""),
    ],
)
def test_ages_have_one_unit(created: str, expected: str):
    assert cluster_tables.age(created, NOW) == expected


def test_what_a_deletion_loses():
    pools = [{"name": "cpu", "pods": 2, "demand": {"running": 3}}, {"name": "gpu", "pods": 1, "demand": {"waiting": 5}}]

    assert loss(a_body({"pools": pools, "scheduler": {"tasks": 9}})) == (
        "demo: 3 worker pods; 3 tasks run or are assigned, 5 wait;"
        " its scheduler holds 9 tasks and results, which are lost"
    )
    assert loss(a_body()) == "demo: no worker pods and no tasks are known"


PODS = [
    a_pod("demo-scheduler-abcde", "scheduler"),
    a_pod("demo-cpu-worker-0", "worker", "cpu"),
    a_pod("demo-cpu-worker-1", "worker", "cpu"),
]


@pytest.mark.parametrize(
    ("of", "pods"),
    [
        ("scheduler", ["demo-scheduler-abcde"]),
        ("cpu", ["demo-cpu-worker-0", "demo-cpu-worker-1"]),
        ("demo-cpu-worker-1", ["demo-cpu-worker-1"]),
    ],
)
def test_whose_logs(of: str, pods: list[str]):
    assert choose(a_body(), PODS, of) == pods


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ("gpu", r"gpu of cluster 'demo' has no pod now \(suspended\)"),
        ("gqu", "no pool or pod 'gqu'; there are: scheduler, cpu, gpu, demo-cpu-worker-0"),
    ],
)
def test_nobodys_logs_are_explained(of: str, said: str):
    with pytest.raises(CliError, match=said) as caught:
        choose(a_body({"reason": "suspended"}), PODS, of)
    assert caught.value.code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("protocol", "line"),
    [
        ("tcp", 'from dask.distributed import Client; client = Client("tcp://127.0.0.1:1")'),
        (
            "tls",
            (
                'from dask.distributed import Client; client = Client("tls://127.0.0.1:1", security=security)'
                "  # your cluster's certificates"
            ),
        ),
    ],
)
def test_the_line_of_python_compiles(protocol: str, line: str):
    assert client_line(a_body(protocol=protocol), 1) == line
    compile(line, "line", "exec")


def test_a_protocol_that_no_port_carries_is_refused():
    with pytest.raises(CliError, match="speaks ucxx"):
        client_line(a_body(protocol="ucxx"), 1)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("get demo", "get demo"),
        ("-n lab get demo", "get -n lab demo"),
        ("-nlab --context=far get", "get -nlab --context=far"),
        (
            "--kubeconfig a --namespace lab scale demo gpu=2 -n other",
            "scale --kubeconfig a --namespace lab demo gpu=2 -n other",
        ),
        ("--version", "--version"),
        ("-n lab", "-n lab"),
        ("-n", "-n"),
        ("", ""),
    ],
)
def test_what_stands_before_a_command_is_read_as_behind_it(written: str, read: str):
    assert verb_first(written.split()) == read.split()
