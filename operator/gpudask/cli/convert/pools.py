"""A worker group as a pool: its size, its GPUs, what it offers and accepts."""

from __future__ import annotations

import math
from typing import Any

from gpudask.api.pool import MAX_REPLICAS
from gpudask.api.values import number
from gpudask.cli.convert.container import Room
from gpudask.cli.convert.notes import Notes
from gpudask.cli.convert.section import Section

Json = dict[str, Any]


def make_pool(name: str, part: Json, section: Section, *, source: str, path: str, notes: Notes) -> Json:
    """What is a pool's own, from a group's `part` and what was read of its pod."""
    replicas = part.get("replicas")
    if isinstance(replicas, int) and replicas > MAX_REPLICAS:
        notes.lost(source, f"{path}.replicas", f"{replicas}: a pool has {MAX_REPLICAS} pods at most")
        replicas = MAX_REPLICAS
    pool: Json = {"name": name, "replicas": 1 if replicas is None else replicas}
    if section.room.gpu is not None:
        pool["gpu"] = section.room.gpu | ({} if section.launch.kind == "cuda" else {"launcher": "dask"})
        if not section.launch.offers:
            pool["accepts"] = "any"
    elif section.launch.kind == "cuda":
        field = f"{path}.spec.containers[0].resources.limits"
        notes.lost(source, field, "`dask cuda worker` without a GPU's limit: write gpu: {count: 1} into the pool")
    for key in ("nthreads", "offers"):
        if value := getattr(section.launch, key):
            pool[key] = value
    if section.launch.nthreads is None and section.launch.kind == "worker":
        _threads(pool, section.room, (source, f"{path}.spec.containers[0].args"), notes)
    return pool


def _threads(pool: Json, room: Room, where: tuple[str, str], notes: Notes) -> None:
    """Without --nthreads Dask takes the cores that it may use: the container's limit, or else the node's."""
    limit = room.template.get("limits", {}).get("cpu")
    ours = 1 if room.gpu is not None else math.ceil(number(room.resources.get("cpu", 1)))
    if limit is None:
        threads = f"{ours} thread{'' if ours == 1 else 's'}"
        notes.assumed(*where, f"neither --nthreads nor a cpu limit: {threads}, not as many as the node has cores")
    elif math.ceil(number(limit)) != ours:
        pool["nthreads"] = math.ceil(number(limit))


def size_by_autoscaler(pool: Json, autoscalers: list[Json], notes: Notes) -> None:
    """The stock autoscaler sizes the default group alone."""
    for extra in autoscalers[1:]:
        notes.lost(name_of(extra), "spec.cluster", "one autoscaler a cluster: the first one holds")
    if not autoscalers:
        return
    spec = autoscalers[0].get("spec", {})
    least, most = spec.get("minimum") or 0, spec.get("maximum")
    if most is None:
        most = MAX_REPLICAS
        notes.assumed(name_of(autoscalers[0]), "spec.maximum", f"not given: {most}, the most that a pool can have")
    if most < max(1, least):
        notes.assumed(name_of(autoscalers[0]), "spec.maximum", f"{most}: raised to {max(1, least)}")
        most = max(1, least)
    del pool["replicas"]
    pool["autoscale"] = {"min": least, "max": most}


def hint_fence(pools: list[Json], source: str, notes: Notes) -> None:
    """How GPU pools could follow GPU work."""
    for pool in pools:
        if "gpu" in pool and len(pools) > 1 and pool.get("accepts") == "any":
            advice = (
                'annotate GPU tasks (resources={"GPU": 1}), remove accepts, and write autoscale: {min: 0, max: ...}'
            )
            notes.hint(
                source, f"pools[{pool['name']}]", f"plain tasks run here as before; to follow GPU work, {advice}"
            )


def name_of(body: Json) -> str:
    """An object, as notes name it."""
    return f"{body.get('kind')} {(body.get('metadata') or {}).get('name', '?')}"
