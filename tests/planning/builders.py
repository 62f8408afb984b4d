"""What a pass sees, in one line each: pods, workers, demands, observations; the resource is `tests.builders`'."""

from __future__ import annotations

from gpudask.api import Json

from dataclasses import replace
from typing import Any

from gpudask.api.resource import Cluster, parse
from gpudask.desired import names, spec_hash
from gpudask.desired.scheduler import MadeWith
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod, current_scheduler
from gpudask.planning.scheduler import in_force
from gpudask.scaling.demand import Demand, Requirement, Worker
from tests.builders import a_manifest, a_pool

NOW = 1_800_000_000.0
UID = "11111111-1111-1111-1111-111111111111"


def scaled(name: str = "cpu", *, least: int = 0, most: int = 4, idle: str = "30s", **fields: Any) -> Json:
    """An autoscaled pool."""
    return a_pool(name, autoscale={"min": least, "max": most, "idleTimeout": idle}, **fields)


def gpu_pool(name: str = "gpu", *, count: int = 1, most: int = 4, **fields: Any) -> Json:
    """An autoscaled GPU pool that starts from zero."""
    return scaled(name, most=most, gpu={"count": count}, **fields)


def stored(body: Json, *, uid: str = UID, generation: int = 1, **metadata: Any) -> Json:
    """A manifest as the API server would return it."""
    known = {"namespace": "default", **body["metadata"], "uid": uid, "generation": generation}
    return body | {"metadata": known | metadata}


def cluster(*pools: Json, uid: str = UID, name: str = "demo", generation: int = 1, **spec: Any) -> Cluster:
    """A cluster as the operator acts on it."""
    return parse(stored(a_manifest(*pools, name=name, **spec), uid=uid, generation=generation))


def deleted(of: Cluster) -> Cluster:
    """The same cluster while it is being deleted."""
    return Cluster(of.name, of.namespace, of.uid, of.generation, deleting=True, spec=of.spec, status=of.status)


def current_hash(of: Cluster, pool_name: str) -> str:
    """The hash of a pod of that pool made from the spec as it is."""
    if not pool_name:
        return spec_hash.of_scheduler(of.spec)
    section = next((p for p in of.spec.pools if p.name == pool_name), None)
    return spec_hash.of_worker(of.spec, section) if section else "a-removed-pool"


def pod(of: Cluster, pool_name: str, number: int = 0, *, running: bool = True, **fields: Any) -> Pod:
    """A worker pod that runs, with the current spec unless said otherwise."""
    name = names.worker_pod(of.name, pool_name, number)
    known: Json = {
        "uid": f"uid-{name}",
        "name": name,
        "namespace": of.namespace,
        "owner": of.owner_key,
        "version": "1",
        "pool": pool_name,
        "dask_name": names.dask_name(name, "abcde"),
        "spec_hash": current_hash(of, pool_name),
        "created": NOW - 100,
    }
    if running:
        known |= {"phase": "Running", "ready": True, "started": NOW - 90, "node": "node-1", "ip": "10.0.0.9"}
    return Pod(**known | fields)


def scheduler_pod(of: Cluster, *, running: bool = True, **fields: Any) -> Pod:
    """The scheduler pod."""
    name = names.scheduler_pod(of.name, of.uid, frozenset())
    known: Json = {"uid": f"uid-{name}", "name": name, "pool": "", "dask_name": "", "spec_hash": current_hash(of, "")}
    known |= {"serves": True, "made_with": MadeWith.of(of.spec)}
    return pod(of, "scheduler", running=running, **known | fields)


def worker(of: Pod, index: int | None = None, **fields: Any) -> Worker:
    """An idle Dask worker of that pod; `index` as dask-cuda numbers them."""
    name = of.dask_name if index is None else f"{of.dask_name}-{index}"
    return Worker(**{"name": name, "pool": of.pool, "idle_seconds": 1000.0} | fields)


def busy(of: Pod, index: int | None = None, **fields: Any) -> Worker:
    """A Dask worker of that pod with one task of its pool's own."""
    return worker(of, index, **{"processing": 1, "own": 1, "idle_seconds": 0.0, "blockers": ("running",)} | fields)


def tasks(unrunnable: int = 0, *, running: int = 0, seconds: float | None = None, **resources: float) -> Requirement:
    """Demand by resource. `seconds`: the known time of all of it; without it all durations are unknown."""
    return Requirement(
        tuple(sorted((name, float(amount)) for name, amount in resources.items())),
        unrunnable=unrunnable,
        processing=running,
        seconds=seconds or 0.0,
        unknown=0 if seconds is not None else unrunnable + running,
    )


def demand(*requirements: Requirement, workers: tuple[Worker, ...] = (), **fields: Any) -> Demand:
    """What the scheduler says."""
    known: Json = {"tasks": sum(r.active + r.waiting for r in requirements)}
    return Demand("s/1", "s", requirements=requirements, workers=workers, **known | fields)


def seen(of: Cluster, *pods: Pod, says: Demand | None = None, now: float = NOW, **fields: Any) -> Observation:
    """What a pass sees."""
    effective = replace(of, spec=in_force(of.spec, current_scheduler(pods)))
    return Observation(effective, tuple(pods), now, demand=says, demand_at=now, wanted=of.spec, **fields)
