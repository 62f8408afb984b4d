"""A cluster's resource as last seen: parsed once a generation, looked up where the copy may be too old to act on."""

from __future__ import annotations

from enum import Enum, auto

from gpudask.api.json_object import Json
from gpudask.api.resource import Cluster, Identity, parse, parse_again
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.reconcile.context import Context

# A copy of the resource older than this, or than the loss of a pod, is looked at again before pods are made from it:
# it may be gone, and its pods with it.
_FRESH_SECONDS = 5.0


class News(Enum):
    """What a newer copy brings."""

    NOTHING = auto()
    EDITED = auto()
    ENDING = auto()
    CONTRADICTION = auto()  # an older spec: late, or that of a backup that was restored


class ResourceCopy:
    """`body`: the newest copy. `version`: the newest that is known of, be it our own status write's.

    `status_is_news`: the body came after our last write, so its status may be somebody else's. `is_contradicted`: an
    older spec was heard of, and only the API server knows which holds.
    """

    def __init__(self, context: Context, body: Json) -> None:
        self.body = body
        self.version = str(body["metadata"].get("resourceVersion", "0"))
        self.status_is_news = self.is_contradicted = False
        self._looked_up = ""  # the version that the API server answered when it was asked
        self._context = context
        self._seen_at = context.clock()
        self._cluster: Cluster | None = None  # as last parsed, from this body:
        self._parsed_from: Json | None = None
        self._doubtful = False  # a pod was lost since the resource was last looked at

    @property
    def key(self) -> str:
        """The resource's `namespace/name`."""
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    def take(self, body: Json) -> News:
        """Keep a newer copy, or the one that the API server has. Another with an older spec is to be looked up."""
        old, new = self.body["metadata"], body["metadata"]
        if new.get("generation", 0) < old.get("generation", 0) and new.get("resourceVersion") != self._looked_up:
            self.is_contradicted = True
            return News.CONTRADICTION
        is_edited = old.get("generation") != new.get("generation") or body.get("spec") != self.body.get("spec")
        if int(new.get("resourceVersion", 0)) > int(self.version):  # else word of it comes late
            self.version = str(new["resourceVersion"])
            self.status_is_news = True
        self.body, self._seen_at = body, self._context.clock()
        if is_edited:
            return News.EDITED
        return News.ENDING if "deletionTimestamp" in new else News.NOTHING

    def wrote(self, answer: Json) -> None:
        """The API server has it at this version: our own write was answered so."""
        self.version = str(answer["metadata"]["resourceVersion"])

    def doubt(self) -> None:
        """A pod was lost: perhaps the cluster was deleted, and word of it is still on its way."""
        self._doubtful = True

    def cluster(self) -> Cluster:
        """The copy, parsed.

        Raises:
            InvalidSpecError: as `parse`.
        """
        if self._parsed_from is not self.body or self._cluster is None:
            metadata, known = self.body["metadata"], self._cluster
            same = known is not None and (known.uid, known.generation) == (metadata["uid"], metadata.get("generation"))
            same = same and self._parsed_from is not None and self._parsed_from.get("spec") == self.body.get("spec")
            self._cluster = parse_again(self.body, known) if known is not None and same else parse(self.body)
            self._parsed_from = self.body
        return self._cluster

    async def looked_up(self) -> Json | None:
        """The resource as it is now, where the copy may be too old to make pods from; None where it is young.

        Raises:
            ClusterGoneError: it was deleted, and nobody told.
            ApiError: the API server refuses, or could not be reached.
        """
        if not self._doubtful and self._context.clock() - self._seen_at < _FRESH_SECONDS:
            return None
        return await self.look_up()

    async def look_up(self) -> Json:
        """The resource as it is now.

        Raises:
            ClusterGoneError: it was deleted, and nobody told.
            ApiError: the API server refuses, or could not be reached.
        """
        asked_with = self.body
        metadata = asked_with["metadata"]
        try:
            body = await self._context.api.get_cluster(metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.not_found:
                cluster = Identity(metadata["name"], metadata["namespace"], metadata["uid"])
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.look_again_seconds)
            raise
        if body["metadata"]["uid"] != metadata["uid"]:
            raise ClusterGoneError
        self._doubtful = self.is_contradicted = False
        version = str(body["metadata"]["resourceVersion"])
        if version != self.version:  # also where it is an older one, as after a restored backup
            self.version, self.status_is_news = version, True
        if self.body is asked_with:  # nothing newer came meanwhile: it holds, be it older
            self._looked_up = version
        return body
