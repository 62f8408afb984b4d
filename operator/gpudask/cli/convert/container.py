"""A stock container's resources: what becomes `resources` and `gpu`, and what only a template can say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpudask.api.gpu import DEFAULT_GPU_RESOURCE
from gpudask.cli.convert.notes import Notes

Json = dict[str, Any]


@dataclass
class Room:
    """What a pod asks for. `template`: the part of `resources` that our fields cannot say."""

    resources: Json = field(default_factory=dict)
    gpu: Json | None = None
    template: Json = field(default_factory=dict)


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is a GPU or a slice of one."""
    return resource.startswith("nvidia.com/") or resource.endswith("/gpu")


def read_room(container: Json, memory_flag: str, source: str, path: str, notes: Notes) -> Room:
    """The room of a worker's or the scheduler's container.

    Args:
        container: the stock one.
        memory_flag: `--memory-limit`, empty where it is not given.
        source: the object, for notes.
        path: the container's, for notes.
        notes: what has to be said.

    Raises:
        ValueError: the number of GPUs is none.
    """
    given = container.get("resources") or {}
    limits, requests = dict(given.get("limits") or {}), dict(given.get("requests") or {})
    room = Room(template={key: item for key, item in given.items() if key not in ("limits", "requests")})
    gpus: Json = {name: limits.pop(name, None) or requests.get(name) for name in [*limits, *requests] if is_gpu(name)}
    for name in gpus:
        requests.pop(name, None)
    if len(gpus) > 1:
        notes.lost(source, f"{path}.resources.limits", f"one kind of GPU a pool: {', '.join(list(gpus)[1:])} left out")
    if gpus:
        name, count = next(iter(gpus.items()))
        room.gpu = {"count": _whole(count, f"{source}: {path}.resources.limits.{name}")} | (
            {} if name == DEFAULT_GPU_RESOURCE else {"resourceName": name}
        )
    for name in sorted({*limits, *requests}):
        _one(room, name, requests.get(name), limits.get(name))
        if name != "cpu" and name not in limits:
            words = f"not given: the request, {requests[name]}, is the limit too"
            notes.assumed(source, f"{path}.resources.limits.{name}", words)
    _memory(room, memory_flag, (source, path), notes)
    return room


def _whole(count: Any, where: str) -> int:
    if not str(count).isdecimal():
        raise ValueError(f"{where}: {count!r} is not a number of GPUs: write a whole one, such as 1")
    return int(count)


def _one(room: Room, name: str, request: Any, limit: Any) -> None:
    """Our requests are limits too, but for cpu; a difference goes into the template."""
    if name == "cpu":
        room.resources["cpu"] = limit if request is None else request
        if limit is not None:
            room.template.setdefault("limits", {})["cpu"] = limit
        return
    room.resources[name] = request if limit is None else limit
    if request is not None and limit is not None and str(request) != str(limit):
        room.template.setdefault("requests", {})[name] = request


def _memory(room: Room, flag: str, where: tuple[str, str], notes: Notes) -> None:
    source, path = where
    memory = room.resources.get("memory")
    if memory is None and flag:
        room.resources["memory"] = flag
        notes.assumed(source, f"{path}.resources.limits.memory", f"not given: {flag}, as --memory-limit says")
    elif memory is None:
        notes.assumed(
            source,
            f"{path}.resources.limits.memory",
            "not given: the pod has no limit, and Dask is told none"
            if room.resources
            else "no resources are given: the pod has our defaults (docs/reference.md)",
        )
    elif flag and flag != str(memory):
        notes.lost(source, f"{path}.args", f"--memory-limit {flag}: Dask is told the pod's memory, {memory}")
