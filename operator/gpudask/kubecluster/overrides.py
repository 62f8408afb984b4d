"""`spec.overrides`: sizes as this client writes them, for `KubeCluster`, a hold, and the command line.

The client owns single entries of the list through server-side apply. An apply states everything that its
field manager wants, so the entries of other pools that it set before have to be in it again. Beside an entry that a
hold set stands the hold's note, in an annotation: they are written together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_HOLDS, API_VERSION, KIND, MIRROR_MANAGER
from gpudask.api.untrusted_text import quote
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server  # the command line reads sizes before it needs an API server

Entries = Mapping[str, Json | None]  # pool -> its override
Notes = Mapping[str, str | None]  # pool -> what its holds note
_MESSAGE_LENGTH = 600  # of what is quoted from a status
FIELD_MANAGER = "gpudask-client"  # owns overrides alone


def pool_names(body: Json) -> list[str]:
    """The cluster's pools, in the manifest's order."""
    return [pool["name"] for pool in body["spec"]["pools"]]


def choose_pool(body: Json, pool: str | None) -> str:
    """`pool`, or the only one there is.

    Raises:
        KubeClusterError: no such pool, or none was named and there are several.
    """
    names = pool_names(body)
    listed = ", ".join(names)
    if pool is None and len(names) == 1:
        return names[0]
    if pool is None:
        raise KubeClusterError(
            f"cluster {body['metadata']['name']!r} has several pools",
            reason=f"its pools are {listed}",
            next_step=f"Name one: pool={names[0]!r}",
        )
    if pool not in names:
        raise KubeClusterError(
            f"cluster {body['metadata']['name']!r} has no pool {pool!r}",
            reason=f"its pools are {listed}",
            next_step="Name one of them",
        )
    return pool


def section_of(body: Json, pool: str) -> Json:
    """The manifest's section for `pool`, which exists."""
    return next(section for section in body["spec"]["pools"] if section["name"] == pool)


def entry_of(body: Json, pool: str) -> Json | None:
    """The override of `pool`, whoever set it."""
    return next((entry for entry in body["spec"].get("overrides", []) if entry["pool"] == pool), None)


def hint_of_size(body: Json, pool: str, pods: int) -> str:
    """What speaks against a size of `pool` that was just asked for, as far as it is known; empty: nothing."""
    row: Json = next((item for item in (body.get("status") or {}).get("pools") or [] if item.get("name") == pool), {})
    if row.get("message") and pods > row.get("ready", 0):
        have = f"{row.get('ready', 0)} of {row.get('desired', 0)} pods are ready"
        return f"pool {pool} already waits, {have}: {quote(str(row['message']), _MESSAGE_LENGTH)}"
    most = (section_of(body, pool).get("autoscale") or {}).get("max")
    if most is not None and pods > most:
        return (
            f"{pods} pods of pool {pool} are more than its manifest's autoscale.max of {most}: quotas and nodes may not"
            " have room for them"
        )
    return ""


def own_entries(body: Json) -> dict[str, Json]:
    """The overrides that this client's field manager has set, by pool."""
    owned = _owned_pools(body, FIELD_MANAGER)
    return {entry["pool"]: entry for entry in body["spec"].get("overrides", []) if entry["pool"] in owned}


def other_owners(body: Json, pool: str) -> list[str]:
    """Field managers other than ours that hold an override of `pool`.

    The mirror's is not among them: users of the stock client change their sizes from here, too.
    """
    managers = {entry["manager"] for entry in body["metadata"].get("managedFields", [])}
    others = managers - {FIELD_MANAGER, MIRROR_MANAGER}
    return sorted(manager for manager in others if pool in _owned_pools(body, manager))


def note_of(body: Json, pool: str) -> str | None:
    """The annotation in which the holds of `pool` keep what is below them; holds.py reads it."""
    note: str | None = (body["metadata"].get("annotations") or {}).get(ANNOTATION_HOLDS + pool)
    return note


def changed(body: Json, entries: Entries, notes: Notes) -> Json:
    """The body to apply so that our overrides of these pools become `entries`, None: none, and our others stay.

    Their notes become `notes`: a pool that is not in it has none. The resourceVersion that was read is named: two
    clients that write at once get a 409, not a lost entry.
    """
    own = own_entries(body)
    wanted = {pool: entry for pool, entry in {**own, **entries}.items() if entry is not None}
    noted = {**{pool: note_of(body, pool) for pool in own if pool not in entries}, **notes}
    metadata: Json = {key: body["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
    result: Json = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    annotations = {ANNOTATION_HOLDS + pool: note for pool, note in sorted(noted.items()) if note is not None}
    if annotations:
        metadata["annotations"] = annotations
    if wanted:
        result["spec"] = {"overrides": [wanted[pool] for pool in sorted(wanted)]}
    return result


def may_apply(body: Json, entries: Entries) -> bool:
    """True if an apply of ours can make these overrides as a whole.

    Not where one of them was set by the mirror, or by an update of ours. Nor where none is left and somebody else has
    written the list, empty, say: the API server makes a null of the list then, and refuses it.
    """
    updated = _owned_pools(body, MIRROR_MANAGER) | _owned_pools(body, FIELD_MANAGER, "Update")
    others = [entry for entry in body["spec"].get("overrides", []) if entry["pool"] not in entries]
    is_empty = not others and not any(entries.values())
    return not updated & entries.keys() and not (is_empty and _is_list_of_others(body))


def replaced(body: Json, entries: Entries, notes: Notes) -> Json:
    """The merge patch that makes `entries` the overrides of their pools, whoever set those before; None removes one.

    Their notes become `notes`: a pool that is not in it has none.
    """
    others = [item for item in body["spec"].get("overrides", []) if item["pool"] not in entries]
    new = [entry for entry in entries.values() if entry is not None]
    metadata: Json = {"resourceVersion": body["metadata"]["resourceVersion"]}
    noted = {pool: notes.get(pool) for pool in entries if pool in notes or note_of(body, pool) is not None}
    if noted:
        metadata["annotations"] = {ANNOTATION_HOLDS + pool: note for pool, note in noted.items()}
    return {"metadata": metadata, "spec": {"overrides": others + new}}


async def set_size(server: Server, name: str, n: int | None, pool: str | None, *, by: str) -> Json:
    """Set `pool` of cluster `name` to `n` pods, or give its size back where `n` is None. The cluster as it is then.

    `by` says who set it.

    Raises:
        KubeClusterError: no such pool, several and none named, others set it too, or the API server refuses.
    """

    async def write(body: Json) -> Json:
        chosen = choose_pool(body, pool)
        if n is None:
            refuse_shared(body, chosen)
            return await put(server, body, {chosen: None})
        return await put(server, body, {chosen: {"pool": chosen, "replicas": n, "by": by}})

    return (await server.rewrite(name, write))[1]


async def set_limits(
    server: Server,
    name: str,
    minimum: int | None,
    maximum: int | None,
    pool: str | None,
    *,
    by: str,
    without_maximum: int | None = None,
) -> Json:
    """Let `pool` follow demand between limits; one that is None is the manifest's. The cluster as it is then.

    `without_maximum` is the maximum where neither says one.

    Raises:
        KubeClusterError: as `set_size`, or the pool's manifest has no maximum and none is given.
    """

    async def write(body: Json) -> Json:
        chosen = choose_pool(body, pool)
        limits = section_of(body, chosen).get("autoscale") or {}
        most = limits.get("max", without_maximum) if maximum is None else maximum
        if most is None:
            raise KubeClusterError(
                f"pool {chosen!r} of cluster {name!r} has no maximum",
                reason="its manifest sets a fixed size, and adapt() was given none",
                next_step=f"Write adapt(maximum=8, pool={chosen!r})",
            )
        least = limits.get("min", 0) if minimum is None else minimum
        return await put(server, body, {chosen: {"pool": chosen, "min": least, "max": most, "by": by}})

    return (await server.rewrite(name, write))[1]


async def put(server: Server, body: Json, entries: Entries, notes: Notes | None = None) -> Json:
    """Make `entries` the overrides of their pools, None: none; the answer. Other pools' overrides stay.

    By apply, so that they stand beside others' fields, where that is possible.

    Args:
        server: where.
        body: the cluster as it was read.
        entries: by pool.
        notes: what the holds of these pools note beside them; without it they end.

    Raises:
        KubeClusterError: the API server refuses, also with 409 where `body` is not the last version.
    """
    notes = notes or {}
    if may_apply(body, entries):
        return await server.apply(changed(body, entries, notes), FIELD_MANAGER)
    patch = replaced(body, entries, notes)
    return await server.merge(body["metadata"]["name"], patch, FIELD_MANAGER)


def refuse_shared(body: Json, pool: str) -> None:
    """Refuse to let go of an override that others hold too: half an entry is none that the API server accepts.

    Raises:
        KubeClusterError: others hold it; they are named.
    """
    owners = other_owners(body, pool)
    if owners:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        raise KubeClusterError(
            f"the override of pool {pool!r} of cluster {name!r} is not ours alone",
            reason=f"{', '.join(owners)} set it as well",
            next_step=f"Remove it there: kubectl edit gdc {name} -n {namespace}, spec.overrides",
        )


def _is_list_of_others(body: Json) -> bool:
    return any(
        "f:overrides" in managed.get("fieldsV1", {}).get("f:spec", {})
        for managed in body["metadata"].get("managedFields", [])
        if (managed["manager"], managed.get("operation")) != (FIELD_MANAGER, "Apply")
    )


def _owned_pools(body: Json, manager: str, operation: str = "") -> set[str]:
    pools = set()
    for managed in body["metadata"].get("managedFields", []):
        if managed["manager"] == manager and operation in ("", managed.get("operation")):
            fields = managed.get("fieldsV1", {}).get("f:spec", {}).get("f:overrides", {})
            # A list-map's item is written `k:{"pool":"gpu"}`.
            pools |= {json.loads(key[2:])["pool"] for key in fields if key.startswith("k:")}
    return pools
