"""Words for a pool that are not its own fields: sizes, Kubernetes' resources, the stock worker command. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpudask.api.values import seconds
from gpudask.kubecluster.errors import KubeClusterError

Json = dict[str, Any]
_CUDA = ("dask-cuda-worker", "dask cuda worker")
_PLAIN = ("dask-worker", "dask worker")


def size(word: str, value: Any) -> Json:
    """`replicas` for a number of pods, `autoscale` for two.

    Raises:
        KubeClusterError: it is neither; `word` is named.
    """
    numbers = [value] if _is_count(value) else list(value) if isinstance(value, tuple | list) else []
    if len(numbers) not in (1, 2) or not all(_is_count(number) for number in numbers):
        raise KubeClusterError(
            f"{word}={value!r} is no size",
            reason="it is a number of pods, or the least and the most",
            next_step=f"Write {word}=2, or {word}=(0, 8) to follow demand",
        )
    if len(numbers) == 1:
        return {"replicas": numbers[0]}
    least, most = numbers
    if least > most or most < 1:
        raise KubeClusterError(
            f"{word}={value!r} has no room",
            reason="the first is the least number of pods, the second the most, which is at least 1",
            next_step=f"Write {word}=(0, 8)",
        )
    return {"autoscale": {"min": least, "max": most}}


def pod_resources(resources: Mapping[str, Any] | None) -> Json:
    """A pool's `resources`, from requests by name or from a container's `requests` and `limits`.

    Raises:
        KubeClusterError: GPUs are asked for, or a limit says something else than the request.
    """
    if not resources:
        return {}
    asked = dict(resources)
    if set(asked) <= {"requests", "limits"}:
        requests, limits = dict(asked.get("requests") or {}), dict(asked.get("limits") or {})
        for name, limit in limits.items():
            if requests.get(name, limit) != limit:
                raise KubeClusterError(
                    f"resources with another limit than request of {name}",
                    reason="a pool has one number: it is the request, and for memory the limit too",
                    next_step=f"Write resources={{{name!r}: {limit!r}}}; for a limit of CPU, a pool's template",
                )
        asked = limits | requests
    gpus = [name for name in asked if name.startswith("nvidia.com/") or name.endswith("/gpu")]
    if gpus:
        raise KubeClusterError(
            f"resources with {', '.join(gpus)}",
            reason="that alone gives a pod a GPU, but no worker that uses it",
            next_step="Write gpus=8, or gpus=(0, 8); other devices: pools=[{'name': 'gpu', 'gpu':"
            " {'resourceName': 'nvidia.com/mig-1g.10gb'}}]",
        )
    return {"resources": asked}


def duration(word: str, value: Any) -> str:
    """A length of time as a manifest has it, of seconds or of such a text.

    Raises:
        KubeClusterError: it is neither; `word` is named.
    """
    try:
        text = value if isinstance(value, str) else _in_seconds(value)
        seconds(text)
    except (TypeError, ValueError) as error:
        raise KubeClusterError(
            f"{word}={value!r} is no length of time",
            reason="it is a number of seconds, or a text such as '1h30m'",
            next_step=f"Write {word}=3600 or {word}='1h'",
        ) from error
    return text


def env_list(env: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Json]:
    """Environment variables by name as a pod has them; those that are so already stay."""
    if isinstance(env, Mapping):
        return [{"name": str(name), "value": str(value)} for name, value in env.items()]
    return [dict(item) for item in env]


def extra_args(command: str | Sequence[str] | None) -> Json:
    """A pool's `extraArgs`, from the stock client's whole `worker_command`.

    Raises:
        KubeClusterError: it starts something else than `dask worker`.
    """
    if command is None:
        return {}
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    line = " ".join(words)
    if any(line.startswith(cuda) for cuda in _CUDA):
        raise KubeClusterError(
            f"worker_command={line!r}",
            reason="a GPU pool starts that by itself",
            next_step="Write gpus=8, and only what you add to it into pools=[{..., 'extraArgs': [...]}]",
        )
    for plain in _PLAIN:
        if line == plain or line.startswith(plain + " "):
            rest = words[len(plain.split()) :]
            return {"extraArgs": rest} if rest else {}
    raise KubeClusterError(
        f"worker_command={line!r} is no `dask worker`",
        reason="the operator starts the workers, so that it knows their names and what they offer",
        next_step="Write arguments alone, as worker_command='dask worker --lifetime 1h', or replace the command in a"
        " pool's template: {'spec': {'containers': [{'name': 'dask', 'command': [...]}]}}",
    )


def _in_seconds(value: Any) -> str:
    if isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
