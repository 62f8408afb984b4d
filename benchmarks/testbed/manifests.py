"""The clusters of the benchmark, and the objects that the operator makes of them. Pure.

Every pod names its node, a fake one, in its template, so that no Kubernetes scheduler takes part: it would cost the
floor and the operator the same, and hide both. Every scheduler pod carries the address of its fake scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.testbed.bare_client import line
from gpudask.api.resource import API_VERSION, KIND, PLURAL, Cluster, parse
from gpudask.clients.kubernetes import collection
from gpudask.desired import preload
from gpudask.desired.names import scheduler_pod as scheduler_pod_name
from gpudask.desired.scheduler import preload_settings, scheduler_pod, services
from gpudask.desired.workers import worker_pod
from gpudask.preload import files

Json = dict[str, Any]

NAMESPACE = "default"
NODES = 10
ADDRESS = "scale.gpudask.dev/address"
"""The annotation with the address of a scheduler pod's fake scheduler."""
CPU, GPU = "cpu", "gpu"
CLUSTERS_PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{PLURAL}"


def cluster_name(number: int) -> str:
    """The name of cluster `number`."""
    return f"c{number:04}"


def node_name(number: int) -> str:
    """The name of fake node `number`."""
    return f"fake-{number}"


def cluster(number: int, address: str, *, cpu_pods: int, gpu_pods_max: int) -> Json:
    """Cluster `number`: `cpu_pods` fixed CPU workers, and a GPU pool from 0 to `gpu_pods_max`."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": cluster_name(number), "namespace": NAMESPACE},
        "spec": {
            "image": "registry.example/dask:1",
            "template": {"spec": {"nodeName": node_name(number % NODES)}},
            "scheduler": {"template": {"metadata": {"annotations": {ADDRESS: address}}}},
            "pools": [
                {"name": CPU, "replicas": cpu_pods},
                {"name": GPU, "gpu": {"count": 1}, "autoscale": {"min": 0, "max": gpu_pods_max, "idleTimeout": "1h"}},
            ],
        },
    }


def creations(bodies: Iterable[Json]) -> Iterator[str]:
    """The requests that create these objects, as the bare client reads them."""
    for body in bodies:
        yield line("POST", CLUSTERS_PATH if body["kind"] == KIND else collection(body), body)


def made_of(body: Json) -> list[Json]:
    """The operator's objects for one cluster with a fixed CPU pool: Service, ConfigMap and pods."""
    owner = _owner(body)
    name = scheduler_pod_name(owner.name, owner.uid, frozenset())
    pool = owner.spec.pools[0]
    return [
        *services(owner),
        preload_settings(owner, "0" * 64),
        scheduler_pod(owner, name, preload.name(files())),
        *(worker_pod(owner, pool, number, "0bare") for number in range(pool.replicas or 0)),
    ]


def shared_by(bodies: list[Json]) -> list[Json]:
    """The operator's objects that all these clusters share."""
    return [preload.preload(NAMESPACE, files(), [_owner(body).shared_reference for body in bodies[:1]])]


def gpu_workers(body: Json, count: int) -> list[Json]:
    """`count` pods of a cluster's GPU pool, as the operator makes them."""
    owner = _owner(body)
    pool = next(pool for pool in owner.spec.pools if pool.name == GPU)
    return [worker_pod(owner, pool, number, "0bare") for number in range(count)]


def _owner(body: Json) -> Cluster:
    """The cluster, with a uid made up where the API server gave none: no controller runs that would mind."""
    metadata = {"uid": f"uid-of-{body['metadata']['name']}", "generation": 1} | body["metadata"]
    return parse(body | {"metadata": metadata})
