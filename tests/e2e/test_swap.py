"""The stock operator is swapped for ours under load: docs/from-dask-kubernetes.md, step by step, with the real one.

`tests/mirror/swap` does the same without a kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future as Outcome
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TypeVar

import gpudask_e2e
import pytest
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec
from distributed import Client, Future
from gpudask_e2e import release, work, work_once_released

from benchmarks.startup.peer import PeerEnvironment
from gpudask.api import Json
from tests.conftest import ROOT
from tests.e2e import stock_objects
from tests.e2e.platform import Platform
from tests.e2e.space import Space
from tests.mirror.stock_operator import stock_operator

pytestmark = pytest.mark.alone  # it installs definitions, and the operator with other values

T = TypeVar("T")

DEFINITIONS = ROOT / "crds" / "mirror.yaml"
# Else the stock client looks the Service's name up for 10 s, twice, before it forwards a port.
FORWARDED = {"port_forward_cluster_ip": True}
GPUS = {"plain": 0, "more": 0, "accelerated": 1}  # GPUs of each worker, by cluster
# The stock operator adds none, and GPU nodes may keep away what asks for no GPU.
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
WORKERS = 2
# How many, how long each takes, and how many of them end only once ours has seen that their cluster has work.
TASKS, SECONDS, HELD = 200, 0.5, 30
# Today's Dask has no `dask-scheduler` and `dask-worker`, which the stock client writes.
SCHEDULER, WORKER = ["dask", "scheduler", "--host", "0.0.0.0"], "dask worker --no-nanny --nthreads 2"  # noqa: S104 - in its pod
# Nine of Dask's processes start at once, on a machine that may have two cores.
START_SECONDS, STEP_SECONDS = 300.0, 180.0


def manifest(platform: Platform, name: str, gpus: int) -> Json:
    """A DaskCluster of two workers, as the stock client makes it."""
    resources: Json = {"requests": {"cpu": "20m", "memory": "384Mi"}}
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    image = platform.provider.image
    body: Json = make_cluster_spec(name, image=image, n_workers=WORKERS, resources=resources, worker_command=WORKER)
    scheduler = body["spec"]["scheduler"]["spec"]["containers"][0]
    scheduler["args"] = SCHEDULER
    scheduler["resources"] = {"requests": resources["requests"]}  # no GPU: it runs no task
    scheduler["livenessProbe"]["timeoutSeconds"] = 30  # it is killed where the machine is busy for longer
    if gpus:
        body["spec"]["worker"]["spec"]["tolerations"] = [TOLERATION]
    for part in ("scheduler", "worker"):
        for container in body["spec"][part]["spec"]["containers"]:
            container["imagePullPolicy"] = platform.provider.pull_policy
    return body


@pytest.fixture
def stock_log(tmp_path: Path) -> Path:
    """Where the stock operator's log is."""
    return tmp_path / "stock-operator.log"


@pytest.fixture
def stock_space(platform: Platform, stock_log: Path, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace for the stock operator's pods, with its definitions. Whatever happens in it, it goes afterwards."""
    if reason := platform.provider.lacks_gpus():
        pytest.skip(reason)
    for definition in PeerEnvironment.ensure().crds:
        platform.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(definition))
        platform.kubectl.await_served("-f", str(definition))
    try:
        with Space.opened(platform, pod_security="privileged") as space:
            try:
                yield space
            finally:
                outcome = getattr(request.node, "outcome_of_call", None)
                if outcome is None or outcome.failed:
                    print(stock_objects.show(space, stock_log))
                stock_objects.remove(space.kubectl)
    finally:
        platform.install()
        for definition in PeerEnvironment.ensure().crds:
            platform.kubectl("delete", "-f", str(definition), "--ignore-not-found", "--timeout=60s")


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """What `call` gives, which knows no deadline of its own.

    Raises:
        AssertionError: it has not ended in so many seconds. It goes on, and holds nobody up.
    """
    outcome: Outcome[T] = Outcome()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - handed on
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return outcome.result(timeout=seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def condition(space: Space, name: str, kind: str) -> str:
    body = json.loads(space.kubectl("get", "daskcluster", name, "-o", "json").stdout)
    found = body.get("status", {}).get("conditions", [])
    return next((f"{item['status']} {item['reason']}" for item in found if item["type"] == kind), "")


def all_tell(space: Space, kind: str, words: str) -> None:
    """Wait until this condition of every DaskCluster has this status and reason."""
    for name in GPUS:
        what = f"DaskCluster {name} tells {kind}: {words}"
        space.wait(lambda name=name: condition(space, name, kind) == words, what, seconds=STEP_SECONDS)


def connected(stack: ExitStack, space: Space, name: str) -> Client:
    """A client of the cluster `name`, by the stock client's class, until `stack` is closed."""

    def connect() -> KubeCluster:
        return KubeCluster.from_name(name, namespace=space.kubectl.namespace, quiet=True, **FORWARDED)

    cluster = within(STEP_SECONDS, f"the stock client connects to {name}", connect)
    stack.callback(cluster.close)
    client = stack.enter_context(Client(cluster, set_as_default=False))
    client.wait_for_workers(WORKERS, timeout=STEP_SECONDS)
    client.upload_file(gpudask_e2e.__file__)
    return client


def not_ready(space: Space) -> list[str]:
    """The pods that are not ready; what is missing altogether, too."""
    pods = space.get("pods", labels="dask.org/component in (scheduler,worker)")
    missing = len(GPUS) * (1 + WORKERS) - len(pods)
    ready = [
        pod["metadata"]["name"]
        for pod in pods
        if any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions", ()))
    ]
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] not in ready] + ["one more"] * missing


def submit(clients: list[Client], number: int) -> Future:
    """One of the tasks."""
    held = number >= TASKS - HELD
    return clients[number % len(clients)].submit(work_once_released if held else work, number, SECONDS, pure=False)


def lost(futures: list[Future]) -> int:
    """How many of the tasks did not give the right result."""
    wrong = 0
    for number, future in enumerate(futures):
        try:
            wrong += future.result(timeout=STEP_SECONDS) != number
        except Exception as error:  # noqa: BLE001 - whatever a lost task raises, it is lost
            print(f"task {number}: {type(error).__name__}: {error}")
            wrong += 1
    return wrong


def uids(space: Space, kind: str) -> set[str]:
    return {item["metadata"]["uid"] for item in space.get(kind)}


@pytest.mark.timeout(1800)
def test_no_task_is_lost_and_idle_clusters_are_replaced(
    platform: Platform, stock_space: Space, stock_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = stock_space
    assert space.kubectl.kubeconfig is not None
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    futures: list[Future] = []
    with ExitStack() as stack:
        with stock_operator(space.kubectl.kubeconfig, space.kubectl.namespace, stock_log):
            for name, gpus in GPUS.items():
                space.apply(manifest(platform, name, gpus))
            space.wait(lambda: not not_ready(space), "every scheduler and worker is ready", seconds=START_SECONDS)
            clients = [connected(stack, space, name) for name in GPUS]
            futures = [submit(clients, number) for number in range(TASKS)]
        before = uids(space, "pods")
        platform.kubectl("replace", "-f", str(DEFINITIONS))
        platform.install("mirror.enabled=true", "mirror.definitions=false")
        all_tell(space, "TakenOver", "False WorkInProgress")
        in_flight = sum(not future.done() for future in futures)
        assert in_flight >= HELD
        for client in clients:
            client.run(release)
        missing = lost(futures)
        print(f"swap: clusters={len(GPUS)} tasks={TASKS} in_flight={in_flight} lost={missing}")
        assert missing == 0
        assert uids(space, "pods") == before, "every scheduler and worker is the same pod"
        futures.clear()
    space.wait(lambda: not space.get("deployments"), "the idle clusters are replaced", seconds=STEP_SECONDS)
    all_tell(space, "Served", "True Served")
    for name in GPUS:
        space.wait_ready(name, seconds=START_SECONDS)
    for name in GPUS:
        with ExitStack() as stack:
            assert connected(stack, space, name).submit(work, 7).result(timeout=STEP_SECONDS) == 7
