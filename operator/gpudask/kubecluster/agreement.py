"""Asking scheduler and workers for their versions, and saying once what does not agree."""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.timing import Timing
from gpudask.kubecluster.versions import Disagreement, disagreement, own

logger = logging.getLogger(__name__)

Json = dict[str, Any]


async def check_versions(scheduler: Any, name: str, body: Json, timing: Timing) -> None:
    """Compare this program with the cluster `name`, and warn of what differs.

    Args:
        scheduler: Dask's rpc to it.
        name: the cluster's.
        body: the cluster, whose image is named; empty where it was not read.
        timing: how long the answers may take.

    Raises:
        KubeClusterError: nothing would pass: another minor version of Python, or a distributed that writes other
            graphs.
    """
    try:
        async with asyncio.timeout(timing.versions_seconds):
            theirs = await scheduler.versions()
        async with asyncio.timeout(timing.versions_seconds):
            workers = await scheduler.broadcast(msg={"op": "versions"}, on_error="ignore")
    except Exception as error:  # noqa: BLE001 - older or busier ones may not answer: Dask compares again by itself
        logger.debug("versions were not compared: %r", error)
        return
    found = disagreement(own(), theirs, {key: answer for key, answer in workers.items() if isinstance(answer, dict)})
    if found is None:
        return
    images = images_of(body)
    named = f"image {' or '.join(images)}" if images else "the cluster's image"
    failure = _failure(name, found, named)
    if found.fatal:
        raise failure
    warnings.warn(str(failure), stacklevel=2)


def _failure(name: str, found: Disagreement, images: str) -> KubeClusterError:
    """What an error says, and a warning too."""
    cure = f"Run this program in {images}, or create the cluster with an image= that has what it has"
    if found.inside:
        cure = f"Give the scheduler and all pools images with the same versions (now {images}), and this program too"
    if not found.fatal:
        cure = f"Most work passes all the same. Where some does not: {cure[0].lower()}{cure[1:]}"
    return KubeClusterError(
        f"this program and cluster {name!r} run different versions",
        reason=f"{found.fatal or 'they differ'}:\n{found.table}",
        next_step=cure,
    )


def images_of(body: Json) -> list[str]:
    """The images that a cluster names, each once."""
    spec = body.get("spec") or {}
    sections = [spec, spec.get("scheduler") or {}, *spec.get("pools", [])]
    return list(dict.fromkeys(section["image"] for section in sections if section.get("image")))
