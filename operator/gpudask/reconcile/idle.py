"""Delete a cluster that nobody uses, as its spec asks (`planning.idle`)."""

from __future__ import annotations

import logging
from typing import Any

from gpudask.api.resource import Cluster
from gpudask.api.status import Reason
from gpudask.clients.errors import ApiError
from gpudask.clients.gone import ClusterGoneError, look_again
from gpudask.reconcile.context import Context

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


async def delete_unused(context: Context, cluster: Cluster, why: str) -> Json | None:
    """Delete `cluster` if it is as it was when that was decided; its newer body where it is not.

    Raises:
        ClusterGoneError: it is deleted now, or was already.
        ApiError: the API server refuses, or could not be reached.
    """
    try:
        body = await context.api.get_cluster(cluster.namespace, cluster.name)
        metadata = body["metadata"]
        if metadata["uid"] != cluster.uid:
            raise ClusterGoneError
        if metadata.get("generation") != cluster.generation:
            return body
        await _say(context, cluster, why)  # before: word of the deletion ends this cluster's loop
        version = metadata["resourceVersion"]
        await context.api.delete_cluster(cluster.namespace, cluster.name, uid=cluster.uid, version=version)
    except ApiError as error:
        if error.not_found:
            await look_again(context.api, cluster, error, after_seconds=context.look_again_seconds)
        if error.conflict:
            return None  # it changed in between: the watch tells, and the next pass decides anew
        raise
    raise ClusterGoneError


async def _say(context: Context, cluster: Cluster, why: str) -> None:
    _LOG.info("%s: to be deleted: %s", cluster.key, why)
    said, reason, now = f"it is to be deleted: {why}", Reason.IDLE_TOO_LONG, context.clock()
    await context.events.record(cluster, reason, said, series=reason, warning=False, now=now)
