"""The flags of `create` as the words that KubeCluster makes a manifest of. Pure."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass, field
from typing import Any

from gpudask.cli.exits import CliError, Exit
from gpudask.kubecluster import manifest as kubecluster

Json = dict[str, Any]
_SIZE = re.compile(r"^(?P<least>\d+)(-(?P<most>\d+))?$")


@dataclass(frozen=True)
class Flags:
    """The flags of `create`, as they were typed."""

    image: str | None = None
    workers: str | None = None
    gpus: str | None = None
    cpu: str | None = None
    memory: str | None = None
    env: list[str] = field(default_factory=list)

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(astuple(self))


def manifest(name: str, flags: Flags) -> Json:
    """The manifest of cluster `name`: a pool cpu unless only GPUs are asked for, a pool gpu where they are.

    Raises:
        CliError: a flag is missing or cannot be read.
        KubeClusterError: what the flags say together is not valid.
    """
    if not flags.image:
        raise CliError("--image is missing: the image of every pod, such as --image me/dask:0.1.0", Exit.USAGE)
    room = {key: _plain(value) for key, value in (("cpu", flags.cpu), ("memory", flags.memory)) if value}
    resources = {"resources": _whole(room)} if room else {}
    pools: list[Json] = []
    if flags.workers is not None or flags.gpus is None:
        pools.append({"name": "cpu", **size("--workers", flags.workers or "1"), **resources})
    if flags.gpus is not None:
        pools.append({"name": "gpu", **size("--gpus", flags.gpus), "gpu": {"count": 1}, **resources})
    env = [_variable(text) for text in flags.env]
    return kubecluster.manifest(name, kubecluster.Arguments(image=flags.image, env=env, pools=pools))


def size(flag: str, text: str) -> Json:
    """`4` as replicas, `0-8` as autoscale.

    Raises:
        CliError: it is neither.
    """
    match = _SIZE.match(text)
    if match is None:
        raise CliError(f"{flag} {text}: write a number of pods, such as 4, or MIN-MAX, such as 0-8", Exit.USAGE)
    if match["most"] is None:
        return {"replicas": int(match["least"])}
    return {"autoscale": {"min": int(match["least"]), "max": int(match["most"])}}


def _whole(room: Json) -> Json:
    # What one flag leaves out keeps the default that a pool without resources has.
    return {"cpu": 1, "memory": "2Gi"} | room


def _plain(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _variable(text: str) -> Json:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CliError(f"--env {text}: write NAME=VALUE", Exit.USAGE)
    return {"name": name, "value": value}
