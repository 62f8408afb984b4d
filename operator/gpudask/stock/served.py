"""The spec of the GpuDaskCluster that serves a DaskCluster: its conversion, and what stays of the present spec.

The documents are a tenant's: whatever they hold, the answer is a spec or an `UnservableError`, and one group that
cannot be read is left out alone. Sizes are taken from the documents once, when a pool is new; later ones are overrides,
which the mirror writes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpudask.api import Json
from gpudask.api.pool import POOL_NAME
from gpudask.api.resource import (
    CLUSTER_NAME,
    DEFAULT_GROUP,
    MAX_CLUSTER_NAME,
    NAME_ADVICE,
    NAME_LENGTH_ADVICE,
    InvalidSpecError,
    broken_limits,
    parse,
)
from gpudask.api.spec import MAX_POOLS, Spec
from gpudask.stock.autoscale import Limits
from gpudask.stock.conversion import convert
from gpudask.stock.notes import Note, Notes
from gpudask.stock.pod import POOL_LENGTH, pool_name

# The fields of a spec that stock objects say. The others are free: people set them on the GpuDaskCluster.
_SAID = ("image", "imagePullPolicy", "imagePullSecrets", "env", "template", "protocol", "scheduler", "pools")
_SIZES = ("replicas", "autoscale")
_SUCCESSORS = {
    "dask-scheduler": "dask scheduler",
    "dask-worker": "dask worker",
    "dask-cuda-worker": "dask cuda worker",
}
_MAX_FAULTS = MAX_POOLS  # each costs a conversion; groups beyond them are not looked at
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
_DIGITS = 5  # of a digest, in the name of a pool whose group's name is too long


class UnservableError(ValueError):
    """A DaskCluster that no GpuDaskCluster can serve; the message names the field and says what to write."""


@dataclass(frozen=True)
class Served:
    """What serves a DaskCluster.

    Attributes:
        spec: of the GpuDaskCluster.
        metadata: its labels and annotations.
        pools: the pool of each worker group, by the object's name.
        refused: why an object is no pool, by the worker group's name.
        kept: the pools that refused groups may have had before an edit: these stay as they are.
        notes: fields that were left out, and what was assumed of others.
        replaced: commands that are started by another name.
    """

    spec: Json
    metadata: Json
    pools: dict[str, str]
    refused: dict[str, str]
    kept: frozenset[str]
    notes: tuple[Note, ...]
    replaced: tuple[str, ...]


def serve(cluster: Json, groups: Iterable[Json], service_types: Collection[str] = SERVICE_TYPES) -> Served:
    """What serves the DaskCluster `cluster` and the DaskWorkerGroups `groups`, which name it.

    Args:
        cluster: `metadata` with name and namespace, and `spec`.
        groups: the same of its worker groups.
        service_types: that the limits allow. Another one is left out and noted: orchestrators ask for one that they do
            not need, and nobody can tell them otherwise.

    Raises:
        UnservableError: the DaskCluster itself is at fault.
    """
    name = cluster["metadata"]["name"]
    _check(cluster)
    cluster = without_nulls(cluster)
    _converted([cluster])
    named = sorted(groups, key=lambda group: str(group["metadata"]["name"]))
    good: list[Json] = []
    pools: dict[str, str] = {}
    refused: dict[str, str] = {}
    faults = 0
    for group in named:
        its_name = group["metadata"]["name"]
        pool = pool_of_group(name, its_name)
        rival = next((other for other, taken in pools.items() if taken == pool), None)
        broken = broken_limits(group.get("spec"))
        renamed = group | {"metadata": group["metadata"] | {"name": f"{name}-{pool}"}}
        renamed = renamed if broken else without_nulls(renamed)
        if broken:
            refused[its_name] = "; ".join(broken)
        elif rival is not None:
            refused[its_name] = f"metadata.name: its pool would be called {pool}, as that of {rival}: choose another"
        elif len(pools) >= MAX_POOLS - 1:
            refused[its_name] = f"metadata.name: a cluster has {MAX_POOLS} pools at most, and {name} has as many"
        elif faults >= _MAX_FAULTS:
            refused[its_name] = f"spec: not looked at: {_MAX_FAULTS} others of {name} are invalid: mend them first"
        elif why := _fault(cluster, renamed):
            refused[its_name] = why
            faults += 1
        else:
            pools[its_name] = pool
            good.append(renamed)
    body, notes = _converted([cluster, *good])
    _allow_service(body["spec"], f"DaskCluster {name}", service_types, notes)
    sources = {f"DaskWorkerGroup {name}-{pool}": f"DaskWorkerGroup {its_name}" for its_name, pool in pools.items()}
    told = tuple(replace(note, source=sources.get(note.source, note.source)) for note in notes.counted)
    metadata = {key: body["metadata"][key] for key in ("labels", "annotations") if key in body["metadata"]}
    replaced = tuple(word for document in (cluster, *good) for word in _replaced(document))
    kept = frozenset(pool_of_group(name, its_name) for its_name in refused) - {*pools.values(), DEFAULT_GROUP}
    return Served(body["spec"], metadata, pools, refused, kept, told, replaced)


def pool_of_group(cluster: str, group: str) -> str:
    """The pool of the DaskWorkerGroup `group` of `cluster`, by the objects' names: `demo-high-mem` is `highmem`."""
    own = group.removeprefix(f"{cluster}-")
    plain = re.sub(r"[^a-z0-9]", "", own.lower())
    if re.fullmatch(POOL_NAME, own) or len(plain) < POOL_LENGTH:
        return pool_name(own)
    return pool_name(own)[: POOL_LENGTH - _DIGITS] + hashlib.sha256(own.encode()).hexdigest()[:_DIGITS]


def merged_spec(
    served: Json, present: Json, kept: frozenset[str] = frozenset(), released: frozenset[str] = frozenset()
) -> Json:
    """The GpuDaskCluster's spec: what stock objects say is as in `served`, all else as it is at `present`.

    So are the sizes of pools that are there, but for limits of those that follow demand, and the pools `kept`, whose
    worker groups cannot be read any more. What was set on one that goes, goes with it: another one may be called so
    later. Other limits end what was set on a pool before; those of the pools `released` were taken away.
    """
    merged = {key: value for key, value in present.items() if key not in _SAID and key != "idle"}
    merged |= {key: served[key] for key in _SAID if key in served}
    idle = {key: value for key, value in _object(present.get("idle")).items() if key != "deleteAfter"}
    idle |= _object(served.get("idle"))
    if idle:
        merged["idle"] = idle
    if "scheduler" in merged:
        merged["scheduler"] = _with_defaults(merged["scheduler"], _object(present.get("scheduler")))
    there = present.get("pools")
    known = {pool.get("name"): pool for pool in there if isinstance(pool, dict)} if isinstance(there, list) else {}
    merged["pools"] = [
        _with_size(pool, known[pool["name"]], is_released=pool["name"] in released) if pool["name"] in known else pool
        for pool in served["pools"]
    ]
    merged["pools"] += [known[name] for name in known if name in kept][: MAX_POOLS - len(merged["pools"])]
    if isinstance(overrides := merged.get("overrides"), list):
        removed = known.keys() - {pool["name"] for pool in merged["pools"]}
        before, after = own_limits(present), own_limits({"pools": served["pools"]})
        removed |= {name for name, limits in after.items() if name in known and before.get(name) != limits}
        merged["overrides"] = [entry for entry in overrides if _object(entry).get("pool") not in removed]
    return merged


def same_spec(one: Json, other: Json) -> bool:
    """Whether two specs mean the same: defaults may be written out in one of them."""
    if one == other:
        return True
    if broken_limits(one) or broken_limits(other):
        return False
    try:
        return Spec.model_validate(one) == Spec.model_validate(other)
    except ValueError:
        return False


def sizes(spec: Json) -> dict[str, int]:
    """The pods of each pool with a fixed size, by its name."""
    pools = spec.get("pools")
    return {
        str(pool.get("name")): pool.get("replicas", 1)
        for pool in (pools if isinstance(pools, list) else ())
        if isinstance(pool, dict) and isinstance(pool.get("replicas", 1), int) and "autoscale" not in pool
    }


def own_limits(spec: Json) -> dict[str, str]:
    """The limits of each pool that follows demand by its own spec, such as `0..8`, by its name."""
    pools = spec.get("pools")
    known = [pool for pool in pools if isinstance(pool, dict)] if isinstance(pools, list) else []
    found = [(str(pool.get("name")), _object(pool.get("autoscale"))) for pool in known]
    return {
        name: str(Limits(limits.get("min", 0), limits["max"]))
        for name, limits in found
        if isinstance(limits.get("max"), int) and isinstance(limits.get("min", 0), int)
    }


def _with_defaults(part: Json, present: Json) -> Json:
    """Without `resources` that ask for nothing, where the part has the defaults already: its pods need not go."""
    if part.get("resources") == {} and "resources" not in present:
        return {key: value for key, value in part.items() if key != "resources"}
    return part


def _with_size(pool: Json, present: Json, *, is_released: bool) -> Json:
    pool = _with_defaults(pool, present)
    if "autoscale" in pool:
        return pool | {"autoscale": _object(present.get("autoscale")) | pool["autoscale"]}
    if is_released and "autoscale" in present:
        return pool
    kept = {key: present[key] for key in _SIZES if key in present}
    return {key: value for key, value in pool.items() if key not in _SIZES} | kept


def _check(cluster: Json) -> None:
    name = str(cluster["metadata"]["name"])
    if len(name) > MAX_CLUSTER_NAME:
        raise UnservableError(f"metadata.name: {NAME_LENGTH_ADVICE}")
    if re.fullmatch(CLUSTER_NAME, name) is None:
        raise UnservableError(f"metadata.name: {NAME_ADVICE}")
    if broken := broken_limits(cluster.get("spec")):
        raise UnservableError("; ".join(broken))


def _fault(cluster: Json, group: Json) -> str:
    """Why `group` is no pool of `cluster`; empty: it is one."""
    try:
        _converted([cluster, group])
    except UnservableError as error:
        return str(error).removeprefix(f"DaskWorkerGroup {group['metadata']['name']}: ")
    return ""


def _converted(documents: list[Json]) -> tuple[Json, Notes]:
    notes = Notes()
    typed = [{"apiVersion": "kubernetes.dask.org/v1", **document} for document in documents]
    try:
        (body,) = convert(typed, notes)
        parse({**body, "metadata": {"namespace": "default", "uid": "unknown", **body["metadata"]}})
    except (InvalidSpecError, ValueError, ArithmeticError) as error:
        raise UnservableError(str(error)) from error
    return body, notes


def without_nulls(value: Any) -> Any:
    """`value` without nulls, which mean in Kubernetes that nothing is set. It is not deep: its limits were checked."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def _allow_service(spec: Json, source: str, allowed: Collection[str], notes: Notes) -> None:
    """Let the scheduler's Service be a ClusterIP, as by default, where its type is not `allowed`."""
    scheduler = _object(spec.get("scheduler"))
    service = _object(scheduler.get("service"))
    wanted = service.get("type", "ClusterIP")
    if wanted in allowed or "ClusterIP" not in allowed:
        return
    text = (
        f"{wanted} is not allowed here: it is a ClusterIP, which is reached from inside Kubernetes, and by a forwarded"
        " port; ask the operator's administrators for limits.serviceTypes"
    )
    notes.lost(source, "spec.scheduler.service.type", text)
    kept = {key: value for key, value in service.items() if key != "type"}
    spec["scheduler"] = {**scheduler, "service": kept}


def _replaced(document: Json) -> list[str]:
    """The commands of `document` that today's Dask lacks, each with what starts instead."""
    spec = _object(document.get("spec"))
    words = []
    for part in ("scheduler", "worker"):
        containers = _object(_object(spec.get(part)).get("spec")).get("containers") or [{}]
        line = [*(containers[0].get("command") or []), *(containers[0].get("args") or [])]
        found = next((item for item in line if item.rpartition("/")[2] in _SUCCESSORS), None)
        if found is not None:
            where = f"spec.{part}.spec.containers[0]"
            words.append(f"{where}: {found[:64]} is started as `{_SUCCESSORS[found.rpartition('/')[2]]}`")
    return words


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
