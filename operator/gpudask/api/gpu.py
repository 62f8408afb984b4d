"""The devices of a GPU pool: how many a pod, of which kind, on which nodes, and what starts its workers."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from gpudask.api.model import Model
from gpudask.api.rules import Rule

EXTENDED_RESOURCE = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"


class Gpu(Model):
    """Makes a pool a GPU pool: each pod gets `count` devices, one worker process for each."""

    rules = (
        Rule(
            f"self.resourceName.matches('{EXTENDED_RESOURCE}')",
            "a device plugin's resource has a domain and a name: write for example nvidia.com/gpu",
            lambda gpu: re.fullmatch(EXTENDED_RESOURCE, gpu.resource_name) is not None,
            ".resourceName",
        ),
    )

    count: Annotated[int, Field(ge=1, le=64, description="GPUs of each pod")] = 1
    resource_name: Annotated[
        str,
        Field(
            max_length=128,
            description="the extended resource that a device plugin offers, e.g. nvidia.com/mig-1g.10gb",
        ),
    ] = DEFAULT_GPU_RESOURCE
    node_selector: Annotated[
        dict[str, str],
        Field(
            max_length=16,
            description="labels of the nodes that have these devices; by default nvidia.com/gpu.present: true",
        ),
    ] = Field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    launcher: Annotated[
        Literal["dask-cuda", "dask"],
        Field(description="dask-cuda: one worker for each GPU; dask: one worker that sees all of the pod's GPUs"),
    ] = "dask-cuda"
