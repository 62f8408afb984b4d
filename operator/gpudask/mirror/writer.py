"""Writing one cluster's mirror: each object in the version that was read, and only where something differs."""

from __future__ import annotations

from typing import Any

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.mirror import objects
from gpudask.mirror.definitions import Definitions
from gpudask.mirror.deletions import Deletions
from gpudask.mirror.shown import superfluous
from gpudask.mirror.state import Mirrored
from gpudask.reconcile.context import Context

Json = dict[str, Any]


class MirrorWriter:
    """What was written, so that nothing is written twice and no change of a person's is written over."""

    def __init__(self, context: Context, definitions: Definitions, deletions: Deletions) -> None:
        self._context = context
        self._definitions = definitions
        self._deletions = deletions
        self._written: dict[tuple[str, str], tuple[Json, str]] = {}  # what was sent, and the version it became
        self._considered: dict[tuple[str, str], str] = {}  # versions that this pass took in

    def consider(self, items: tuple[Mirrored, ...]) -> None:
        """A pass begins, which knows the objects as they are in `items`: what changes from now on is the next one's."""
        self._considered = {(item.kind, item.name): item.version for item in items}

    async def write(self, cluster: Cluster, wanted: list[Json]) -> None:
        """Make the mirror be `wanted`.

        Raises:
            ApiError: the API server refused it, failed, or could not be reached.
        """
        items = {(item.kind, item.name): item for item in self._definitions.of(cluster)}
        # What a person changed last is confirmed last: until then it is what counts.
        wanted.sort(key=lambda body: int(item.version) if (item := items.get(_key(body))) else 0)
        for body in wanted:
            await self._write(body, items.get(_key(body)))
        for item in superfluous(cluster, tuple(items.values()), wanted):
            if not self._is_news(item):
                await self._delete(cluster, item)

    async def _write(self, body: Json, there: Mirrored | None) -> None:
        if there is not None and (self._written.get(_key(body)) == (body, there.version) or self._is_news(there)):
            return
        if there is None and self._deletions.concerns(body["kind"]):
            return  # somebody deleted it in the middle of this pass: the next one says what that means
        if there is None:
            answer = await self._context.api.create(_without_nulls(body))
        else:
            answer = await self._context.api.merge(body, version=there.version)
        self._written[_key(body)] = (body, answer["metadata"]["resourceVersion"])
        self._definitions.caches[body["kind"]].lay_over(body["metadata"]["namespace"], answer)

    def _is_news(self, item: Mirrored) -> bool:
        """Whether it changed in the middle of this pass: the next one, which the change wakes, says what that means."""
        key = item.kind, item.name
        ours = self._written[key][1] if key in self._written else ""
        return item.version not in (self._considered.get(key), ours)

    async def _delete(self, cluster: Cluster, item: Mirrored) -> None:
        body = {
            "apiVersion": objects.API_VERSION,
            "kind": item.kind,
            "metadata": {"name": item.name, "namespace": cluster.namespace},
        }
        self._deletions.expect(item.uid)
        try:
            await self._context.api.delete(body, uid=item.uid, version=item.version)
        except ApiError as error:
            self._deletions.expect_no_more(item.uid)
            if not error.not_found:
                raise
        self._definitions.caches[item.kind].forget(cluster.namespace, item.uid)


def _key(body: Json) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _without_nulls(body: Json) -> Json:
    """A null removes a field in a merge, and is refused in an object that is made."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in body.items()
        if value is not None
    }
