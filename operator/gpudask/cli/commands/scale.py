"""`gpudask scale`: sizes that a person sets, for a while or until they are given back.

They are written as overrides: the same entries under the same field manager as KubeCluster's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from gpudask.api import Json
from gpudask.cli import client, output
from gpudask.cli.completion import sizes as complete_sizes
from gpudask.cli.options import Context, Kubeconfig, Name, Namespace, Output, read_length
from gpudask.cli.output import CliError, Exit
from gpudask.kubecluster import overrides
from gpudask.kubecluster.manifest import user

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

Sizes = Annotated[
    list[str] | None,
    typer.Argument(metavar="POOL=N...", help="Pods, or auto to give it back.", autocompletion=complete_sizes),
]
AUTO = "auto"


def scale_command(
    *,
    name: Name,
    pool_sizes: Sizes = None,
    replicas: Annotated[str | None, typer.Option(metavar="N", help="As kubectl's, for a cluster of one pool.")] = None,
    lasting: Annotated[str | None, typer.Option("--for", help="How long it holds, such as 30m or 2h.")] = None,
    output_form: Output = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Set the sizes of pools, or give them back.

    They hold whatever the manifest says, until --for is over or auto gives the pool back to it.

    It writes spec.overrides under a field manager of its own, as KubeCluster.scale does, so that a GitOps tool that
    owns spec.pools does not fight it. It leaves the list of pools alone, which kubectl patch --type=merge would replace
    whole: pools that the patch does not name would go. Pods that are too many finish their tasks and hand over
    results first.

    \b
    Example:
      gpudask scale demo gpu=4
      gpudask scale demo gpu=4 cpu=10 --for 2h
      gpudask scale demo gpu=auto
    """  # noqa: D301
    entries = [*(pool_sizes or []), *([] if replicas is None else [replicas])]
    if not entries:
        raise CliError(f"say which pool is to have how many pods: gpudask scale {name} gpu=4", Exit.USAGE)
    asked = read_sizes(entries)
    until = datetime.now(UTC) + timedelta(seconds=read_length(lasting)) if lasting else None

    async def scale(server: Server) -> Json:
        return await write(server, name, asked, until)

    body = client.run(client.Target(kubeconfig, context, namespace), scale)
    if output_form is not None:
        typer.echo(output.documents([body], output_form), nl=False)
        return
    typer.echo(f"{output.cluster_reference(name)} scaled: {sizes_text(body, asked)}")
    for entry, size in asked.items():
        pool = _choose(body, entry)
        if size is not None and (hint := overrides.hint_of_size(body, pool, size)):
            output.write_message(hint)
    if body["spec"].get("suspend"):
        output.write_message(f"the cluster is suspended: sizes hold once it is resumed, gpudask resume {name}")


def read_sizes(entries: list[str]) -> dict[str, int | None]:
    """`gpu=4` as 4 pods, `gpu=auto` as None. A bare number is under the empty name: the only pool there is.

    Raises:
        CliError: an entry is no size, or a pool is named twice.
    """
    found: dict[str, int | None] = {}
    for entry in entries:
        pool, _, size = entry.rpartition("=")
        if size != AUTO and not (size.isascii() and size.isdecimal()):
            raise CliError(f"{entry!r}: write POOL=N with a number of pods, such as gpu=4, or POOL=auto", Exit.USAGE)
        if pool in found or (found and "" in (pool, *found)):
            raise CliError(f"{entry!r}: each pool once, by its name", Exit.USAGE)
        found[pool] = None if size == AUTO else int(size)
    return found


def wanted(body: Json, sizes: dict[str, int | None], until: datetime | None, by: str) -> dict[str, Json | None]:
    """The overrides of the pools of `body` that make these sizes; None: none.

    Raises:
        CliError: no such pool, or one that is given back is somebody else's as well.
    """
    entries: dict[str, Json | None] = {}
    for entry, size in sizes.items():
        pool = _choose(body, entry)
        if size is None:
            _refuse_others(body, pool)
            entries[pool] = None
            continue
        end = {} if until is None else {"until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        entries[pool] = {"pool": pool, "replicas": size, "by": by, **end}
    return entries


def sizes_text(body: Json, sizes: dict[str, int | None]) -> str:
    """A message about the sizes, with until when."""
    entries = {entry["pool"]: entry for entry in body["spec"].get("overrides", [])}
    texts = []
    for entry, size in sizes.items():
        pool = _choose(body, entry)
        until = entries.get(pool, {}).get("until")
        count = f"{size} pods" if size != 1 else "1 pod"
        texts.append(f"{pool} as its manifest says" if size is None else f"{pool} {count}")
        if size is not None and until:
            texts[-1] += f" until {until}"
    return ", ".join(texts)


async def write(server: Server, name: str, sizes: dict[str, int | None], until: datetime | None) -> Json:
    """Read, write, and again where another write came between.

    Raises:
        CliError: no such pool, or one that cannot be given back.
        KubeClusterError: no such cluster, or the API server refuses.
    """

    async def put(body: Json) -> Json:
        return await overrides.put(server, body, wanted(body, sizes, until, user()))

    return (await server.rewrite(name, put))[1]


def _choose(body: Json, pool: str) -> str:
    names = overrides.pool_names(body)
    if not pool and len(names) == 1:
        return names[0]
    if pool not in names:
        what = f"has no pool {pool!r}" if pool else "has several pools"
        advice = f"its pools are {', '.join(names)}: write for example {names[0]}=2"
        raise CliError(f"cluster {body['metadata']['name']!r} {what}; {advice}", Exit.NOT_FOUND if pool else Exit.USAGE)
    return pool


def _refuse_others(body: Json, pool: str) -> None:
    # Letting go of our half would leave theirs in force: saying "given back" would be wrong.
    listed = any(entry["pool"] == pool for entry in body["spec"].get("overrides", []))
    owners = overrides.other_owners(body, pool)
    if listed and owners:
        name = body["metadata"]["name"]
        raise CliError(
            f"the override of pool {pool!r} of cluster {name!r} is set by {', '.join(owners)} as well:"
            f" remove it there, or with kubectl edit gdc {name}, under spec.overrides"
        )
