"""`gpudask suspend` and `gpudask resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gpudask.api import Json
from gpudask.cli import client, output
from gpudask.cli.options import Context, Kubeconfig, Names, Namespace, Output, Selector, names_or_selector

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server


def suspend_command(
    *,
    names: Names = None,
    selector: Selector = None,
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Remove every pod, keep the cluster.

    Running tasks end first. Results that nobody fetched are lost; the sizes stay.

    \b
    Example:
      gpudask suspend demo
      gpudask wait demo --for suspended
    """  # noqa: D301
    _switch(
        names_or_selector(names, selector),
        selector,
        client.Target(kubeconfig, context, namespace),
        output_form,
        suspend=True,
    )


def resume_command(
    *,
    names: Names = None,
    selector: Selector = None,
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Bring a suspended cluster back.

    \b
    Example:
      gpudask resume demo
    """  # noqa: D301
    _switch(
        names_or_selector(names, selector),
        selector,
        client.Target(kubeconfig, context, namespace),
        output_form,
        suspend=False,
    )


def _switch(names: list[str], selector: str | None, target: client.Target, form: str | None, *, suspend: bool) -> None:
    async def write(server: Server) -> list[tuple[Json, bool]]:
        before = await client.chosen(server, names, selector)  # one that is not there leaves all as they are
        moved = [bool(body["spec"].get("suspend", False)) != suspend for body in before]
        patch = {"spec": {"suspend": suspend}}
        written = [await server.merge(body["metadata"]["name"], patch) for body in before]
        return list(zip(written, moved, strict=True))

    done = client.run(target, write)
    if form is not None:
        typer.echo(output.documents([body for body, _ in done], form), nl=False)
        return
    word = "suspended" if suspend else "resumed"
    for body, moved in done:
        typer.echo(f"{output.reference(body)} {word}{'' if moved else ' already'}")
