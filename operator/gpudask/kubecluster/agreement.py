"""Asking scheduler and workers for their versions, and saying once what does not agree."""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import Any

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.versions import disagreement, own

logger = logging.getLogger(__name__)

Json = dict[str, Any]
_ANSWER_SECONDS = 10.0


async def check_versions(scheduler: Any, name: str, body: Json) -> None:
    """Compare this program with the cluster `name`, and warn of what differs.

    Args:
        scheduler: Dask's rpc to it.
        name: the cluster's.
        body: the cluster, whose image is named; empty where it was not read.

    Raises:
        KubeClusterError: another minor version of Python, whose functions cannot be unpickled.
    """
    try:
        theirs = await asyncio.wait_for(scheduler.versions(), _ANSWER_SECONDS)
        answers = scheduler.broadcast(msg={"op": "versions"}, on_error="ignore")
        workers = await asyncio.wait_for(answers, _ANSWER_SECONDS)
    except Exception as error:  # noqa: BLE001 - older or busier ones may not answer: Dask compares again by itself
        logger.debug("versions were not compared: %r", error)
        return
    found = disagreement(own(), theirs, {key: answer for key, answer in workers.items() if isinstance(answer, dict)})
    if found is None:
        return
    failure = KubeClusterError(
        f"this program and cluster {name!r} run different versions",
        reason=f"they differ in\n{found.table}",
        next_step=f"Run this program in {_images(body)}, or create the cluster with an image= that has what it has",
    )
    if found.fatal:
        raise failure
    warnings.warn(str(failure), stacklevel=2)


def _images(body: Json) -> str:
    spec = body.get("spec") or {}
    sections = [spec, spec.get("scheduler") or {}, *spec.get("pools", [])]
    images = list(dict.fromkeys(section["image"] for section in sections if section.get("image")))
    return f"image {' or '.join(images)}" if images else "the cluster's image"
