"""Completion after TAB, in the shell and in kubectl: contexts, namespaces, clusters, pools, goals.

Whatever goes wrong, nothing is offered and nothing is said: the words that stand there are for the command to refuse.
And a shell is not kept waiting: what is not known after two seconds (GPUDASK_COMPLETION_SECONDS) is not offered.

kubectl (1.26 and newer) starts `kubectl_complete-gpudask` with the words after the plugin's name, the last one
unfinished or empty. It reads candidates, a line each, then `:` and a number that says what the shell does with them, in
Cobra's protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import typer

from gpudask.api import Json
from gpudask.api.resource import JOB_PLURAL, LABEL_CLUSTER
from gpudask.cli import client
from gpudask.kubecluster.kube import config as kubeconfig

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

TIMEOUT_VARIABLE = "GPUDASK_COMPLETION_SECONDS"
TIMEOUT_SECONDS = 2.0
_MOST_SECONDS = 3600.0
_FILES, _NO_SPACE, _NO_FILES = 0, 2, 4  # Cobra's ShellCompDirective: Default, NoSpace, NoFileComp


def contexts(ctx: typer.Context) -> list[str]:
    """The kubeconfig's contexts."""

    def read() -> list[str]:
        config = kubeconfig.load(ctx.params.get("kubeconfig"), dict(os.environ))
        return [item["name"] for item in (config or {"contexts": []})["contexts"]]

    return _quietly(read)


def namespaces(ctx: typer.Context) -> list[str]:
    """The namespaces, where they may be listed."""

    async def listed(server: Server) -> list[str]:
        answer = await server.call("list", "namespaces", namespace="")
        return [item["metadata"]["name"] for item in answer["items"]]

    return _query(ctx, listed)


def clusters(ctx: typer.Context) -> list[str]:
    """The clusters of the namespace, but for those that were named already."""
    named = ctx.params.get("names") or []
    return [name for name in (body["metadata"]["name"] for body in _bodies(ctx)) if name not in named]


def jobs(ctx: typer.Context) -> list[str]:
    """The jobs of the namespace."""

    async def listed(server: Server) -> list[str]:
        answer = await server.call("list", JOB_PLURAL)
        return [item["metadata"]["name"] for item in answer["items"]]

    return _query(ctx, listed)


def records(ctx: typer.Context) -> list[str]:
    """The clusters that left a record, each once."""

    async def listed(server: Server) -> list[str]:
        async with aclosing(server.each_record(metadata_only=True)) as bodies:
            labels = [body["metadata"].get("labels") or {} async for body in bodies]
        return sorted({str(of[LABEL_CLUSTER]) for of in labels if LABEL_CLUSTER in of})

    return _query(ctx, listed)


def pools(ctx: typer.Context) -> list[str]:
    """The pools of the cluster that was named."""
    # Where an option's value is still missing, what else was typed has not been told apart yet.
    name = ctx.params.get("name") or next(iter(ctx.args), None)
    named = [body for body in _bodies(ctx) if body["metadata"]["name"] == name]
    return [pool["name"] for body in named for pool in body["spec"]["pools"]]


def sizes(ctx: typer.Context) -> list[str]:
    """`POOL=` for each pool of the cluster that was named."""
    return [f"{pool}=" for pool in pools(ctx)]


def goals(ctx: typer.Context) -> list[str]:
    """The goals of `wait --for`, with the pools of the cluster where it was named before."""
    return ["ready", "suspended", "created", "deleted", *(f"workers={pool}:" for pool in pools(ctx))]


def answer_alone(app: Callable[[], Any]) -> None:
    """Run `app`, which was started to complete a line, and end with it.

    Nothing reaches the terminal but the answer, and nothing that hangs, such as a name server or a program for
    credentials, holds up the end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    code = 0
    try:
        app()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:  # noqa: BLE001 - see above
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def candidates(app: Callable[..., Any], words: list[str], variable: str) -> list[str]:
    """The candidates for the last of `words`, as `app` gives them to a shell that sets the environment's `variable`."""
    unfinished = words or [""]
    os.environ[variable] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join(["gpudask", *unfinished])
    os.environ["COMP_CWORD"] = str(len(unfinished))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app(args=[], prog_name="gpudask")
    return [line for line in printed.getvalue().splitlines() if line]


def kubectl_answer(found: list[str]) -> str:
    """`found` in Cobra's protocol. Where nothing is known the shell offers files, for `-f` and FILE."""
    directive = _NO_FILES if found else _FILES
    if found and all(item.endswith("=") for item in found):
        directive |= _NO_SPACE  # the number follows at once: gpu=4
    return "".join(f"{line}\n" for line in [*found, f":{directive}"])


def _bodies(ctx: typer.Context) -> list[Json]:
    async def listed(server: Server) -> list[Json]:
        return await server.clusters()

    return _query(ctx, listed)


def _query(ctx: typer.Context, query: Callable[[Server], Any]) -> list[Any]:
    target = client.Target(*(ctx.params.get(key) for key in ("kubeconfig", "context", "namespace")))

    async def connected() -> list[Any]:
        found: list[Any] = await query(await client.connect(target))
        return found

    return _quietly(lambda: asyncio.run(connected()))


def _timeout_seconds() -> float:
    with contextlib.suppress(ValueError):
        return min(float(os.environ.get(TIMEOUT_VARIABLE, TIMEOUT_SECONDS)), _MOST_SECONDS)
    return TIMEOUT_SECONDS


def _quietly(read: Callable[[], list[Any]]) -> list[Any]:
    """Return what `read` finds in time; nothing where it fails, whyever: a shell's TAB is no place to say so.

    It runs in a thread: a program for credentials blocks whoever waits for it.
    """
    found: list[Any] = []

    def work() -> None:
        with contextlib.suppress(Exception):
            found.extend(read())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_timeout_seconds())
    return list(found)
