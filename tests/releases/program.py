"""What a program does on a cluster with the pools `cpu` and `gpu`; it prints what it saw as a line of JSON.

    python program.py CLUSTER NAMESPACE

It runs in environments that know nothing of the tests. Its functions are its own, so they travel by value.
"""

from __future__ import annotations

from gpudask.api import Json

import json
import re
import sys
import warnings
from typing import Any

import dask
import distributed
from distributed import Client, get_worker

from gpudask import KubeCluster, KubeClusterError


_SECONDS = 60
_LARGE_BYTES = 5_000_000  # is compressed on the way where both sides can


def double(number: int) -> int:
    return 2 * number


def add_up(numbers: list[int]) -> int:
    return sum(numbers)


def fail() -> None:
    raise ZeroDivisionError("on purpose")


def pool(*_: Any) -> str:
    """The pool that it runs in, from its worker's name."""
    match = re.search(r"-([a-z0-9]+)-worker-", str(get_worker().name))
    return match[1] if match else ""


def work(cluster: KubeCluster, client: Client) -> Json:
    """Everything that crosses between a program and its cluster, one of each."""
    parts = [dask.delayed(double)(number) for number in range(4)]
    whole = dask.delayed(add_up)(parts)
    with dask.annotate(resources={"GPU": 1}):
        annotated = dask.delayed(pool)(whole)
    cluster.scale(1, pool="gpu")
    cluster.wait_for_workers(1, pool="gpu", timeout=_SECONDS)
    seen = {
        "submitted": client.submit(double, 21, pure=False).result(timeout=_SECONDS),
        "mapped": client.gather(client.map(double, range(4), pure=False)),
        "scattered": client.submit(add_up, client.scatter([1, 2, 3]), pure=False).result(timeout=_SECONDS),
        "graph": client.compute(whole).result(timeout=_SECONDS),
        "large": len(client.submit(bytes, _LARGE_BYTES, pure=False).result(timeout=_SECONDS)),
        "restricted": client.submit(pool, resources={"GPU": 1}, pure=False).result(timeout=_SECONDS),
        "annotated": client.compute(annotated, optimize_graph=False).result(timeout=_SECONDS),
        "raised": repr(client.submit(fail, pure=False).exception(timeout=_SECONDS)),
    }
    cluster.unscale("gpu")
    return seen


def main(name: str, namespace: str) -> Json:
    """Connect, work, disconnect; or say why it was refused."""
    seen: Json = {"distributed": distributed.__version__}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with KubeCluster.from_name(name, namespace=namespace, quiet=True) as cluster, Client(cluster) as client:
                seen |= work(cluster, client)
        except KubeClusterError as error:
            seen["error"] = str(error)
    told = [str(warning.message) for warning in caught]
    return seen | {"warnings": [text for text in told if "different versions" in text]}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
