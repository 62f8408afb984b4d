"""What the GPU benchmark applies and reads: manifests that the API takes, a watch, a worker's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import manifests
from benchmarks.gpu.__main__ import LOCAL_IMAGE
from benchmarks.gpu.measurements import LAUNCHERS, of_launcher, registered, steps
from benchmarks.gpu.runner import BenchmarkError, PodWatch, Runner
from benchmarks.testbed.pods import SeenPod
from gpudask.api.resource import parse
from gpudask.desired.workers import worker_pod
from local.images.offline_worker import WORKER_IMAGE

LOG = """\
2026-11-22T03:05:08.100000000Z 2026-11-22 03:05:08,099 - distributed.nanny - INFO - Start Nanny at: 'tcp://10.0.0.6:1'
2026-11-22T03:05:09.585123456Z 2026-11-22 03:05:09,585 - distributed.worker - INFO -         Registered to: tcp://x:8786
"""
TEMPLATE = {
    "spec": {
        "containers": [{"name": "dask", "volumeMounts": [{"name": "host-opt", "mountPath": "/opt"}]}],
        "volumes": [{"name": "host-opt", "hostPath": {"path": "/opt"}}],
    }
}


def test_the_image_is_the_one_that_install_loads() -> None:
    assert LOCAL_IMAGE == WORKER_IMAGE


class Refusing:
    """A kubectl whose cluster never gets ready."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def apply(self, manifest: Any) -> None:
        """All is taken."""

    def __call__(self, *words: str) -> str:
        self.asked.append(words[0])
        if words[0] == "wait":
            raise BenchmarkError("timed out waiting for the condition")
        if words[0] == "get":
            raise BenchmarkError("no status yet")
        return "[pod/any] its last words" if words[0] == "logs" else ""


def test_a_cluster_that_does_not_get_ready_is_told_with_its_pods_last_words() -> None:
    kubectl: Any = Refusing()
    runner = Runner(kubectl, "image", {}, None, gpus=1, repeats=1)
    with pytest.raises(BenchmarkError) as caught, runner.cluster("any", manifests.gpu_pool(replicas=1)):
        pytest.fail("it is not ready")
    assert str(caught.value).splitlines() == [
        "no status yet",
        "[pod/any] its last words",
        "timed out waiting for the condition",
    ]
    assert kubectl.asked[-2:] == ["delete", "delete"], "it is gone, pods and all"


def test_every_program_is_carried() -> None:
    files = {path.name for path in (Path(manifests.__file__).parent / "programs").glob("*.py")}
    assert set(manifests.FILES) == files - {"__init__.py"}


def test_a_warmed_pool_imports_before_its_workers_register() -> None:
    pool = manifests.warmed(manifests.gpu_pool(autoscale={"min": 0, "max": 1}), "some.module")
    body = manifests.cluster("first", "image", TEMPLATE, [pool])
    cluster = parse(body | {"metadata": {"name": "first", "namespace": "room", "uid": "any"}})
    container = worker_pod(cluster, cluster.spec.pools[0], 0, "any")["spec"]["containers"][0]
    wanted = container["args"].index("--pre-import")
    assert container["args"][wanted + 1] == "some.module"
    assert container["workingDir"] == "/programs"
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/opt", "/programs"}


def test_each_launcher_has_a_pool_and_a_resource_of_its_own() -> None:
    for pool, (_, launcher) in LAUNCHERS.items():
        body = manifests.cluster("first", "image", TEMPLATE, [of_launcher(pool, launcher)])
        cluster = parse(body | {"metadata": {"name": "first", "namespace": "room", "uid": "any"}})
        (container,) = worker_pod(cluster, cluster.spec.pools[0], 0, "abcde")["spec"]["containers"]
        assert container["args"][container["args"].index("--resources") + 1] == f"GPU=1 {pool}=1"
        assert ("--preload" in container["args"]) == (launcher == "dask-cuda")


def test_tasks_can_be_imported_wherever_they_are_unpickled() -> None:
    body = manifests.cluster("any", "image", TEMPLATE, [manifests.cpu_pool(1, 1)])
    cluster = parse(body | {"metadata": {"name": "any", "namespace": "room", "uid": "any"}})
    container = worker_pod(cluster, cluster.spec.pools[0], 0, "any")["spec"]["containers"][0]
    assert container["workingDir"] == "/programs"
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/opt", "/programs"}
    assert "/programs" not in str(TEMPLATE)


def test_a_program_has_the_templates_volumes_and_its_own() -> None:
    spec = manifests.program_pod("any", "image", TEMPLATE, ["a.module"], gpus=2, python=None)["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["host-opt", manifests.PROGRAMS]
    (container,) = spec["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert "command" not in container
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/opt", "/programs"}


def event(kind: str, **status: Any) -> str:
    meta = {"uid": "1", "name": "p", "labels": {"gpudask.dev/pool": "gpu"}} | status.pop("metadata", {})
    body = {"metadata": meta, "spec": status.pop("spec", {}), "status": status}
    return json.dumps({"type": kind, "object": body}) + "\n"


def test_a_watch_tells_when_a_pod_had_a_node_ran_and_went() -> None:
    placed = {"spec": {"nodeName": "n"}}
    running = placed | {"containerStatuses": [{"state": {"running": {}}}]}
    text = event("ADDED") + event("MODIFIED", **placed) + event("MODIFIED", **running)
    text += event("DELETED", **running, metadata={"deletionTimestamp": "now"})
    watch = PodWatch(text.splitlines(keepends=True))
    watch.run()
    (pod,) = watch.pods("gpu")
    assert 0 < pod.created <= pod.placed <= pod.running <= pod.leaving <= pod.gone
    assert watch.pods("cpu") == []


def test_a_gpu_is_held_from_the_node_until_the_pod_is_gone_and_within_the_run_only() -> None:
    pod = SeenPod("p", "gpu", created=1.0, placed=2.0, gone=10.0)
    assert pod.held_seconds(0.0, 20.0) == 8.0
    assert pod.held_seconds(5.0, 7.0) == 2.0
    assert SeenPod("p", "gpu", created=1.0, placed=2.0).held_seconds(0.0, 20.0) == 18.0
    assert SeenPod("p", "gpu", created=1.0).held_seconds(0.0, 20.0) == 0.0


def test_a_worker_registers_when_its_log_says_so() -> None:
    assert registered(LOG) == pytest.approx(1795316709.585123, abs=1e-3)


def test_a_log_without_a_registration_is_shown() -> None:
    with pytest.raises(BenchmarkError, match="Start Nanny"):
        registered(LOG.splitlines()[0])


def test_the_steps_add_up_to_the_whole() -> None:
    stamps = {"submitted": 1.0, "began": 5.5, "imported": 6.0, "context": 6.2, "computed": 6.7, "received": 6.8}
    found = steps(stamps, SeenPod("p", "gpu", created=1.1, running=2.0), 5.0)
    assert found["decision"] == pytest.approx(0.1)
    assert found["process"] == pytest.approx(3.0)
    assert sum(found.values()) == pytest.approx(5.8)
