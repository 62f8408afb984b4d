"""The words for a worker pod, `resources` and `worker_command`, as fields of a pool."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterValueError
from gpudask.stock import launch
from gpudask.stock.launch import Launch
from gpudask.stock.notes import Notes
from gpudask.stock.pod import MAIN, Resources, preload_env, read_resources, set_threads

_WHERE = ("KubeCluster", "worker_command")
_COMMAND = "worker_command.args"
# Names that people write for a resource -> what they mean.
_MEANT = {
    **dict.fromkeys(("cpu", "cpus", "cores"), "'cpu'"),
    **dict.fromkeys(("memory", "mem", "ram"), "'memory'"),
    **dict.fromkeys(("ephemeral-storage", "storage", "disk"), "'ephemeral-storage'"),
    **dict.fromkeys(("gpu", "gpus"), "gpus=8, beside resources"),
}


@dataclass(frozen=True)
class Worker:
    """A worker pod.

    Attributes:
        fields: of a pool, without its GPUs.
        gpu: the pool's section `gpu`, where `resources` ask for one.
        protocol: of the command; empty where it has none.
        is_cuda: whether the command is `dask cuda worker`.
    """

    fields: Json = field(default_factory=dict)
    gpu: Json | None = None
    protocol: str = ""
    is_cuda: bool = False

    @property
    def has_gpus(self) -> bool:
        """True if its pods have GPUs: `resources` ask for them, or the command needs one."""
        return self.gpu is not None or self.is_cuda

    @property
    def gpu_fields(self) -> Json:
        """The fields that make its pool one of GPUs: plain tasks run there too, as they do in the stock client's."""
        return {"gpu": self.gpu or {"count": 1}} | ({} if "offers" in self.fields else {"accepts": "any"})

    @property
    def cpu_fields(self) -> Json:
        """The fields for a pool beside that of the GPUs: what is for `dask cuda worker` is left out."""
        if not self.is_cuda:
            return self.fields
        return {name: value for name, value in self.fields.items() if name in ("resources", "template")}


def read_worker(resources: Mapping[str, Any] | None, command: str | Sequence[str] | None) -> Worker:
    """The worker that is meant.

    Args:
        resources: `{"cpu": 4, "memory": "16Gi"}`, or a container's, with `requests` and `limits`. GPUs are among them.
        command: `dask worker`, `dask cuda worker` or a script of these names, anywhere, with arguments.

    Raises:
        KubeClusterValueError: it cannot be said here; the message says what to write.
    """
    notes = Notes()
    started = _read_command(command, notes) if command else Launch()
    asked = _read_resources(resources, started, notes)
    for note in notes.lost_ones:
        of_command = note.path == _COMMAND
        raise KubeClusterValueError(
            f"worker_command={_line(command)!r}" if of_command else f"resources={resources!r}",
            reason=note.text,
            next_step="Leave it out",
        )
    fields: Json = {
        "resources": asked.requests,
        "template": {"spec": {"containers": [{"name": MAIN, "resources": asked.template}]}} if asked.template else {},
        "nthreads": started.nthreads,
        "offers": started.offers,
        "extraArgs": started.extra,
        "env": preload_env(started),
    }
    fields = {name: value for name, value in fields.items() if value}
    if started.nthreads is None and "cpu" in asked.template.get("limits", {}):
        set_threads(fields, asked, _WHERE, notes)
    return Worker(fields, _gpu(asked.gpu, started), started.protocol.removesuffix("://"), started.kind == "cuda")


def _read_resources(resources: Mapping[str, Any] | None, started: Launch, notes: Notes) -> Resources:
    container = {"resources": _container_resources(resources)}
    try:
        return read_resources(container, started.memory, *_WHERE, notes)
    except ValueError as error:
        raise KubeClusterValueError(
            f"resources={resources!r}", reason="a pod has a whole number of GPUs", next_step="Write 'nvidia.com/gpu': 1"
        ) from error


def _gpu(asked: Json | None, started: Launch) -> Json | None:
    """As in a converted manifest: the extended resource alone picks the nodes."""
    if asked is None:
        return None
    return {**asked, "nodeSelector": {}} | ({} if started.kind == "cuda" else {"launcher": "dask"})


def _read_command(command: str | Sequence[str], notes: Notes) -> Launch:
    try:
        parts = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
    except (TypeError, ValueError) as error:
        raise KubeClusterValueError(
            f"worker_command={command!r}",
            reason=f"it is no command: {error}",
            next_step="Write worker_command='dask worker --lifetime 1h', or a list of its words",
        ) from error
    started = launch.read(parts, ("KubeCluster", _COMMAND), notes)
    if started.kind not in ("worker", "cuda"):
        raise KubeClusterValueError(
            f"worker_command={_line(command)!r} is no `dask worker`",
            reason="the operator starts the workers, so that it knows their names and what they offer",
            next_step="Write worker_command='dask worker --lifetime 1h', or 'dask cuda worker', or replace the command"
            " in a pool's template: {'spec': {'containers': [{'name': 'dask', 'command': [...]}]}}",
        )
    return started


def _container_resources(resources: Mapping[str, Any] | None) -> Json:
    if not resources:
        return {}
    wrong = KubeClusterValueError(
        f"resources={resources!r}",
        reason="it is an amount by name, or a container's requests and limits",
        next_step="Write {'cpu': 4, 'memory': '16Gi'}, or {'requests': {'cpu': 2}, 'limits': {'memory': '16Gi'}}",
    )
    if not isinstance(resources, Mapping):
        raise wrong
    parts = dict(resources) if set(resources) <= {"requests", "limits"} else {"requests": dict(resources)}
    for part in parts.values():
        if part is not None and not (isinstance(part, Mapping) and all(map(_is_amount, part, part.values()))):
            raise wrong
    _refuse_unknown([name for part in parts.values() for name in part or {}])
    return {name: dict(part or {}) for name, part in parts.items()}


def _refuse_unknown(names: list[str]) -> None:
    from gpudask.api.base import PLAIN_RESOURCES, is_resource  # noqa: PLC0415 - the models take long to load

    if wrong := [name for name in names if not is_resource(name)]:
        name = wrong[0][:100]
        close = get_close_matches(name.lower(), _MEANT, n=1, cutoff=0.5)
        raise KubeClusterValueError(
            f"resources with {name!r}",
            reason=f"Kubernetes knows {', '.join(PLAIN_RESOURCES)}; others have a domain, as example.com/dongle",
            next_step=f"Did you mean {_MEANT[close[0]]}?" if close else "Write one of these, or leave it out",
        )


def _is_amount(name: Any, amount: Any) -> bool:
    return isinstance(name, str) and isinstance(amount, str | int | float) and not isinstance(amount, bool)


def _line(command: str | Sequence[str] | None) -> str:
    return command if isinstance(command, str) else " ".join(str(part) for part in command or [])
