"""The stock client's documented calls, unchanged, in a pod beside a cluster of ours; prints a line for each.

    python stock_client.py CLUSTER

https://kubernetes.dask.org/en/latest/operator_kubecluster.html. It is run where nothing of this checkout is.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.discovery import discover
from distributed import Client
from distributed.client import FutureCancelledError

SECONDS = 90
RECOVERS_SECONDS = 90


def say(*words: object) -> None:
    """A line of its own, in one piece: the stock client draws boxes meanwhile."""
    sys.stdout.write(f"\n{' '.join(map(str, words))}\n")


def eventually(look: Callable[[], bool], what: str) -> None:
    """As in tests/eventually.py, which is not in the pod."""
    deadline = time.monotonic() + SECONDS
    while not look():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.2)


def told(word: str) -> None:
    """Wait until the test says so."""
    say(f"waiting for: {word}")
    eventually((Path("/tmp/told") / word).exists, word)  # noqa: S108 - in the pod


def workers(client: Client, pool: str) -> int:
    known = client.scheduler_info(n_workers=-1)["workers"].values()
    return sum(f"-{pool}-worker-" in worker["name"] for worker in known)


def compute(client: Client) -> str:
    plain = client.submit(sum, [1, 2], pure=False).result(timeout=SECONDS)
    restricted = client.submit(sum, [1, 2], resources={"GPU": 1}, pure=False).result(timeout=SECONDS)
    return f"{plain} {restricted}"


def works_again(client: Client) -> str:
    """Dask's client cancels what was pending when a connection broke: ask again, for so long."""
    began = time.monotonic()
    seen: Exception = TimeoutError()
    while time.monotonic() < began + RECOVERS_SECONDS:
        try:
            assert client.submit(sum, [1, 2], pure=False).result(timeout=5) == 3
        except (FutureCancelledError, TimeoutError, OSError) as error:
            seen = error
        else:
            return f"yes, after {time.monotonic() - began:.1f} s"
    return f"no: {seen!r}"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return f"{done.returncode} {' '.join((done.stdout + done.stderr).split())}"


def sizes(cluster: KubeCluster, client: Client) -> None:
    cluster.scale(2)
    eventually(lambda: workers(client, "cpu") == 2, "two CPU workers")
    say("scale(2): 2 CPU workers")
    cluster.scale(1, worker_group="gpu")
    eventually(lambda: workers(client, "gpu") == 1, "a GPU worker")
    say("scale(1, worker_group='gpu'): 1 GPU worker")
    say("compute:", compute(client))
    logs = cluster.get_logs()
    told_by = {name.split("-")[1]: len(text) > 0 for name, text in logs.items()}
    say("get_logs:", len(logs), told_by)
    cluster.adapt(minimum=1, maximum=2)
    eventually(lambda: workers(client, "cpu") == 1, "one CPU worker, since nothing is to do")
    say("adapt(minimum=1, maximum=2): 1 CPU worker")
    say("kubectl scale:", run("kubectl", "scale", "daskworkergroup", f"{cluster.name}-gpu", "--replicas=0"))
    eventually(lambda: workers(client, "gpu") == 0, "no GPU worker")
    say("kubectl scale to 0: 0 GPU workers")


def listing() -> None:
    async def names() -> list[str]:
        return [name async for name, kind in discover() if kind is KubeCluster]

    say("discover:", asyncio.run(names()))
    say("dask cluster list:", run(sys.executable, "-m", "dask", "cluster", "list", "kubecluster"))


def creation(image: str) -> None:
    """A cluster that the stock client makes, uses and deletes."""
    small = {"cpu": "100m", "memory": "500Mi"}
    resources = {"requests": small, "limits": {"memory": "500Mi"}}
    with (
        KubeCluster(name="another", image=image, n_workers=1, resources=resources, quiet=True) as made,
        Client(made) as client,
    ):
        say("KubeCluster(name='another'):", client.submit(sum, [1, 2]).result(timeout=SECONDS))


def breakages(cluster: KubeCluster, client: Client) -> None:
    told("scheduler-gone")
    say("works again after the scheduler:", works_again(client))
    cluster.scale(2)
    eventually(lambda: workers(client, "cpu") == 2, "two CPU workers of the new scheduler")
    say("scale after the scheduler: 2 CPU workers")
    told("operator-gone")
    say("works again after the operator:", works_again(client))
    cluster.scale(1)
    eventually(lambda: workers(client, "cpu") == 1, "one CPU worker, by the next operator")
    say("scale after the operator: 1 CPU worker")


def main(name: str) -> None:
    with KubeCluster.from_name(name=name) as cluster, Client(cluster) as client:
        say("address:", cluster.scheduler_address)
        sizes(cluster, client)
        listing()
        creation(cluster.image)
        breakages(cluster, client)
    say("close: without an error")
    with contextlib.closing(KubeCluster.from_name(name=name, shutdown_on_close=True)):
        pass
    say("close with shutdown_on_close: the DaskCluster is gone")


if __name__ == "__main__":
    main(sys.argv[1])
