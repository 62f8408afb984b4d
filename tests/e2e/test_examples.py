"""The examples as a user applies them: what their comments promise is what happens."""

from __future__ import annotations

from gpudask.api import Json

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpudask_e2e import ends, first_visible_gpu, read_record, record, release, wait_for_release, work

from tests.e2e.manifests import IDLE_TIMEOUT, QUICK_END, localized
from tests.e2e.space import Space


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GPU = {"GPU": 1}
SMALL = ("--parts", "8", "--rows", "2000", "--rounds", "2")


def example(name: str) -> Json:
    """A manifest with the images built here and stand-in GPUs; idle pods leave sooner, the rest is as it is written."""
    written = yaml.safe_load((EXAMPLES / name).read_text())
    local = localized(written)
    local["spec"]["template"] = QUICK_END
    local["spec"]["scheduler"] = written["spec"].get("scheduler", {})
    for pool, original in zip(local["spec"]["pools"], written["spec"]["pools"], strict=True):
        for field in ("resources", "nthreads"):
            del pool[field]
            if field in original:
                pool[field] = original[field]
        if "autoscale" in pool:
            pool["autoscale"]["idleTimeout"] = IDLE_TIMEOUT
    return local


def run(space: Space, program: str, cluster: str, *arguments: str) -> str:
    """Run an example's program as its manifest's comment says, from outside the cluster; what it printed."""
    where = ("--cluster", cluster, "--namespace", space.kubectl.namespace)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *where, *arguments],
        env={"KUBECONFIG": str(space.kubectl.kubeconfig), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + space.show()
    return done.stdout


def pool_of(worker: str) -> str:
    """The pool in a worker's name."""
    match = re.search(r"-([a-z0-9]+)-worker-\d+-", worker)
    assert match, worker
    return match[1]


def test_minimal_has_one_worker_and_computes(space: Space) -> None:
    space.apply(example("minimal.yaml"))
    space.wait_ready("minimal")
    assert space.names("minimal", "cpu") == {"minimal-cpu-worker-0"}
    with space.client("minimal") as client:
        assert client.gather(client.map(work, range(10))) == list(range(10))
    header, row = (line.split()[:4] for line in space.kubectl("get", "gdc").stdout.splitlines())
    assert header == ["NAME", "PHASE", "CPU", "GPU"]
    assert row == ["minimal", "Running", "1/1", "0/0"]


def test_mixed_runs_its_gpu_steps_on_gpu_workers_and_returns_to_zero(space: Space) -> None:
    space.apply(example("mixed.yaml"))
    space.wait_ready("demo")
    run(space, "mixed_pipeline.py", "demo")
    space.wait_pods("demo", "gpu", 0)
    space.wait(lambda: space.pool("demo", "gpu")["gpuSecondsHeld"] > 0, "a GPU pod came and was counted")


@pytest.mark.alone  # its clusters ask for the whole cores of the defaults
@pytest.mark.local_cluster("its operator has a default image, and its GPUs are pretended without a word in a manifest")
def test_mixed_and_a_bare_kubecluster_run_as_they_are_written(space: Space) -> None:
    space.kubectl("apply", "-f", str(EXAMPLES / "mixed.yaml"))
    space.wait_ready("demo")
    assert "plain NumPy agrees: yes" in run(space, "mixed_pipeline.py", "demo", *SMALL)
    space.kubectl("delete", "gdc", "demo")
    program = (
        "from dask.distributed import Client\nfrom gpudask import KubeCluster\n"
        f"with KubeCluster(gpus=1, namespace={space.kubectl.namespace!r}) as cluster, Client(cluster) as client:\n"
        "    print(client.submit(sum, [1, 2], resources={'GPU': 1}).result())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"KUBECONFIG": str(space.kubectl.kubeconfig), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "3" in done.stdout.splitlines(), done.stdout + done.stderr + space.show()


def test_multi_gpu_has_four_workers_in_one_pod_and_each_gpu_task_has_a_gpu_of_its_own(space: Space) -> None:
    space.apply(example("multi-gpu.yaml"))
    space.wait_ready("multi")
    with space.client("multi") as client:
        record(client)
        first = client.submit(wait_for_release, 0, resources=GPU, pure=False)
        space.wait_workers("multi", "gpu", 4)
        assert space.names("multi", "gpu") == {"multi-gpu-worker-0"}
        assert space.pool("multi", "gpu")["gpusHeld"] == 4
        client.run(release)
        assert first.result(timeout=60) == 0  # until then its worker counts as one that works
        tasks = client.map(first_visible_gpu, range(4), seconds=2.0, resources=GPU, pure=False)
        assert sorted(client.gather(tasks)) == ["0", "1", "2", "3"]
        used = [worker for workers in ends(client, [task.key for task in tasks]).values() for worker in workers]
        (pod,) = {worker.rpartition("-")[0] for worker in used}
        assert sorted(used) == [f"{pod}-{gpu}" for gpu in range(4)]
        del first, tasks
        printed = run(space, "mixed_pipeline.py", "multi", *SMALL)
        assert "plain NumPy agrees: yes" in printed
    space.wait_pods("multi", "gpu", 0)


def test_memory_steering_starts_the_big_pool_for_the_annotated_step_alone(space: Space) -> None:
    space.apply(example("memory-steering.yaml"))
    space.wait_ready("steering")
    assert space.names("steering", "himem") == set(), "it should start from zero"
    with space.client("steering") as client:
        record(client)
        printed = run(space, "memory_steering.py", "steering")
        assert "joined in pool himem" in printed
        ran = [(key.partition("-")[0], pool_of(worker)) for key, _, worker in client.run_on_scheduler(read_record)]
    assert sorted(set(ran)) == [("join", "himem"), ("make", "cpu")]
    assert ran.count(("join", "himem")) == 1
    space.wait_pods("steering", "himem", 0)


def test_gpu_only_starts_from_zero_on_plain_tasks_and_runs_everything_on_gpu_workers(
    space: Space, tmp_path: Path
) -> None:
    space.apply(example("gpu-only.yaml"))
    space.wait_ready("gpuonly")
    assert space.names("gpuonly", "gpu") == set(), "it should start from zero"
    with space.client("gpuonly") as client:
        assert client.submit(work, 1).result(timeout=90) == 1, "a plain task starts no GPU pod"
    report = tmp_path / "report.json"
    run(space, "mixed_pipeline.py", "gpuonly", *SMALL, "--report", str(report))
    placement = json.loads(report.read_text())["placement"]
    tasks = {step: sum(workers.values()) for step, workers in placement.items()}
    assert tasks == {"load": 8, "clean": 8, "fourier_gram": 8, "summarise": 1}
    assert {pool_of(worker) for workers in placement.values() for worker in workers} == {"gpu"}
    space.wait_pods("gpuonly", "gpu", 0)


def test_fallback_runs_on_the_cpu_pool_while_no_node_has_a_gpu(space: Space) -> None:
    manifest = example("fallback.yaml")
    pool = next(pool for pool in manifest["spec"]["pools"] if pool["name"] == "gpu")
    pool["gpu"] |= {"nodeSelector": {"no-node": "has-this"}}
    pool["fallback"]["after"] = "3s"
    space.apply(manifest)
    space.wait_ready("fallback")
    printed = run(space, "fallback.py", "fallback", "--tasks", "6", "--seconds", "0.1")
    assert "ran on gpu workers: 0, on cpu workers: 6; right" in printed
    space.wait_pods("fallback", "gpu", 0)
