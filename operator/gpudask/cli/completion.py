"""What the shell offers after TAB: contexts, clusters, pools. Whatever goes wrong, nothing is offered."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import typer

from gpudask.cli import access
from gpudask.kubecluster import kubeconfig

Json = dict[str, Any]
_PATIENCE_SECONDS = 2.0


def contexts(ctx: typer.Context) -> list[str]:
    """The kubeconfig's contexts."""
    with contextlib.suppress(Exception):  # a broken kubeconfig is for the command itself to report
        config = kubeconfig.load(ctx.params.get("kubeconfig"), dict(os.environ))
        return [item["name"] for item in (config or {"contexts": []})["contexts"]]
    return []


def clusters(ctx: typer.Context) -> list[str]:
    """The clusters of the namespace."""
    return [body["metadata"]["name"] for body in _bodies(ctx)]


def sizes(ctx: typer.Context) -> list[str]:
    """`POOL=` for each pool of the cluster that was named."""
    return [f"{pool}=" for pool in pools(ctx)]


def pools(ctx: typer.Context) -> list[str]:
    """The pools of the cluster that was named."""
    named = [body for body in _bodies(ctx) if body["metadata"]["name"] == ctx.params.get("name")]
    return [pool["name"] for body in named for pool in body["spec"]["pools"]]


def _bodies(ctx: typer.Context) -> list[Json]:
    target = access.Target(*(ctx.params.get(key) for key in ("kubeconfig", "context", "namespace")))

    async def listed() -> list[Json]:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await (await access.connect(target)).clusters()

    with contextlib.suppress(Exception):  # no server, no rights: a shell's TAB is no place to say so
        return asyncio.run(listed())
    return []
