"""`gpudask render`: the objects that a manifest would become, without a cluster; what is unknown is a placeholder."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from gpudask.api import Json
from gpudask.api.pool import Pool
from gpudask.api.resource import Cluster
from gpudask.cli import output
from gpudask.cli.manifests import checked, namespace_of, read_clusters
from gpudask.cli.options import Format, Manifest, Namespace
from gpudask.cli.output import CliError
from gpudask.desired import disruption, names, network, preload
from gpudask.desired.scheduler import preload_settings, scheduler_pod, services
from gpudask.desired.workers import worker_pod
from gpudask.planning.overrides import active_override
from gpudask.planning.scheduler import with_default_image
from gpudask.preload import files

Form = Annotated[Format, typer.Option("--output", "-o", help="What to write.")]
OneOfEach = Annotated[bool, typer.Option("--one-of-each", help="One worker pod a pool, whatever its size.")]
PLACEHOLDER_UID = "00000000-0000-0000-0000-000000000000"
PLACEHOLDER_TOKEN = "the-operator-writes-a-token-here"  # noqa: S105 - no secret
PLACEHOLDER_NAMESPACE = "gpudask-system"
PLACEHOLDER_NONCE = "xxxxx"
PLACEHOLDER_IMAGE = "the-operators-default-image"


def render_command(
    *,
    file: Manifest,
    one_of_each: OneOfEach = False,
    output_form: Form = Format.YAML,
    namespace: Namespace = None,
) -> None:
    """Print the objects that a manifest becomes.

    They are the scheduler, its Service, ConfigMaps, budget and NetworkPolicy, and the worker pods. No cluster is
    needed. The number of worker pods is the one at the start: replicas, or the minimum. What only the
    operator knows are placeholders: the owner's uid, the token, a part of each worker's name, and the image of a
    manifest that names none.

    \b
    Example:
      gpudask render demo.yaml
      gpudask render demo.yaml --one-of-each -o name
    """  # noqa: D301
    bodies = read_clusters(file)
    place = namespace_of(bodies, namespace) or "default"
    made = [item for body in bodies for item in _objects(body, place, one_of_each=one_of_each)]
    typer.echo(output.documents(made, output_form, whole_list=False), nl=False)


def _objects(body: Json, namespace: str, *, one_of_each: bool) -> list[Json]:
    cluster = with_default_image(checked(body, namespace, PLACEHOLDER_UID), None, PLACEHOLDER_IMAGE)
    try:
        return objects(cluster, files(), now=time.time(), one_of_each=one_of_each)
    except ValueError as error:
        raise CliError(f"{cluster.name}: the template cannot be merged: {error}") from error


def objects(cluster: Cluster, files: dict[str, bytes], *, now: float = 0.0, one_of_each: bool = False) -> list[Json]:
    """The objects that the operator would make of `cluster` in its first pass. Pure.

    Args:
        cluster: a parsed manifest, with any uid.
        files: what runs inside the scheduler, name -> bytes.
        now: seconds since 1970: an override that has ended by then sets nothing. Without it, none has ended.
        one_of_each: one worker pod a pool instead of as many as at the start.
    """
    scheduler = names.scheduler_pod(cluster.name, cluster.uid, frozenset())
    beside = [
        *services(cluster),
        preload.preload(cluster.namespace, files, [cluster.shared_reference]),
        preload_settings(cluster, PLACEHOLDER_TOKEN),
        disruption.budget(cluster, is_protected=True),
        network.policy(cluster, PLACEHOLDER_NAMESPACE),
    ]
    if cluster.spec.suspend and not one_of_each:
        return beside
    workers = [
        worker_pod(cluster, pool, number, PLACEHOLDER_NONCE)
        for pool in cluster.spec.pools
        for number in range(1 if one_of_each else initial_size(cluster, pool, now))
    ]
    return [*beside, scheduler_pod(cluster, scheduler, preload.name(files)), *workers]


def initial_size(cluster: Cluster, pool: Pool, now: float) -> int:
    """Pods of `pool` before there is any demand: an override's, the fixed number, or the least."""
    override = active_override(cluster.spec.overrides, pool.name, now)
    if override is not None:
        return (override.min or 0) if override.replicas is None else override.replicas
    if pool.autoscale is not None:
        return pool.autoscale.min
    return 1 if pool.replicas is None else pool.replicas
