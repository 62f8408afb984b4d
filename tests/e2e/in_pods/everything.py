"""All that `KubeCluster` does, one step after the other. Each prints a line `step: what was seen`, which a test reads.

Arguments: the image, and the pools of the cluster `full` as JSON: `cpu` with one pod, and `gpu` from zero.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from distributed import Client

from gpudask import CreateMode, KubeCluster, KubeClusterError, discover, has_gpu

IMAGE, POOLS = sys.argv[1], json.loads(sys.argv[2])
GPU = {"GPU": 1}
SMALL = {"cpu": "100m", "memory": "512Mi"}
ELSEWHERE = """
from distributed import Client
from gpudask import KubeCluster

with KubeCluster.from_name("full", quiet=True) as cluster, Client(cluster) as client:
    print("in a second process:", client.submit(sum, [1, 2], pure=False).result(timeout=90))
    print("what its table shows:", cluster._repr_html_().replace("\\n", " "))
"""


def say(step: str, *seen: object) -> None:
    print(f"{step}:", *(str(item).replace("\n", " ") for item in seen), flush=True)


def refused(step: str, call: Callable[[], Any]) -> None:
    try:
        made = call()
    except KubeClusterError as error:
        say(step, error)
    else:
        say(step, "not refused:", made)


def where(client: Client, **options: Any) -> str:
    on_gpu = client.submit(has_gpu, pure=False, **options).result(timeout=60)
    return "on a GPU worker" if on_gpu else "on a CPU worker"


def bare() -> None:
    with KubeCluster() as cluster, Client(cluster) as client:
        name = cluster.name
        say("bare", where(client), "at", cluster.scheduler_address)
    refused("its end deleted it", lambda: KubeCluster.from_name(name, quiet=True))


def full() -> None:
    options = {"image": IMAGE, "pools": POOLS, "create_mode": CreateMode.CREATE_ONLY, "shutdown_on_close": False}
    with KubeCluster("full", quiet=True, timeout=120, **options) as cluster, Client(cluster) as client:
        cluster.wait_for_workers(1, pool="cpu", timeout=60)
        say("created", where(client))
        sizes(cluster, client)
        pools(cluster)


def sizes(cluster: KubeCluster, client: Client) -> None:
    cluster.scale(1, pool="gpu")
    cluster.wait_for_workers(1, pool="gpu", timeout=60)
    say("scaled", where(client, resources=GPU))
    cluster.adapt(0, 2, pool="gpu")
    with cluster.hold("gpu", 1, timeout=60) as workers:
        say("held", len(workers), where(client, workers=workers, resources=GPU))
        logs(cluster)  # while no pod leaves


def logs(cluster: KubeCluster) -> None:
    found = cluster.get_logs(tail=100)
    say("logs", *sorted(found))
    say("the scheduler's log", *(text for name, text in found.items() if "full-scheduler" in name))


def pools(cluster: KubeCluster) -> None:
    cluster.add_pool("more", n_workers=1, resources=SMALL, template=POOLS[0].get("template", {}))
    cluster.wait_for_workers(1, pool="more", timeout=60)
    say("added", repr(cluster))
    cluster.remove_pool("more")
    say("removed", repr(cluster))
    refused("a pool that is not there", lambda: cluster.scale(1, pool="more"))


def names() -> None:
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True)
    refused("CREATE_ONLY", lambda: KubeCluster("full", create_mode=CreateMode.CREATE_ONLY, quiet=True))
    with KubeCluster("full", n_workers=3):
        pass
    refused("CONNECT_ONLY", lambda: KubeCluster("fool", create_mode=CreateMode.CONNECT_ONLY, quiet=True))


async def awaited() -> None:
    say("discovered", *[name async for name, _ in discover()])
    await asyncio.gather(computed(), absent())


async def computed() -> None:
    async with (
        KubeCluster.from_name("full", asynchronous=True, quiet=True) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        await cluster.wait_for_workers(1, pool="cpu", timeout=90)
        async with cluster.hold("cpu", 1, timeout=90) as workers:
            say("awaited", await client.submit(sum, [1, 2], workers=workers, pure=False))


async def absent() -> None:
    words = {"image": "localhost/no/such:image", "n_workers": 1, "resources": SMALL}
    try:
        await KubeCluster("absent", asynchronous=True, quiet=True, timeout=60, **words)
    except KubeClusterError as error:
        say("an absent image", error)
    try:
        await KubeCluster.from_name("absent", asynchronous=True, quiet=True)
    except KubeClusterError as error:
        say("which leaves nothing", error)


def rests() -> None:
    with KubeCluster.from_name("full", quiet=True) as cluster:
        cluster.suspend()
        refused("suspended", until_refused)
        cluster.resume(timeout=90)
        with Client(cluster) as client:
            say("resumed", where(client))


def until_refused() -> None:
    """The scheduler goes last: until then somebody may still reach it, or just miss it."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            KubeCluster.from_name("full", quiet=True).close()
        except KubeClusterError as error:
            if "suspended" in str(error):
                raise


def owned() -> None:
    with KubeCluster.from_name("full", quiet=True, shutdown_on_close=True):
        pass
    refused("its owner's end deleted it", lambda: KubeCluster.from_name("full", quiet=True))


if __name__ == "__main__":
    bare()
    full()
    names()
    asyncio.run(awaited())
    rests()
    owned()
    say("done", "everything")
