"""The local copies of custom resources: what is newest, though events, answers and looks come in any order.

They are parsed once a generation, and refreshed where they may be too old to act on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from gpudask.api import Json
from gpudask.api.resource import Cluster, Identity, InvalidSpecError, parse, parse_again
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.recheck import confirmed
from gpudask.reconcile.context import Context

# A copy older than this, or than the loss of a pod, is refreshed before pods are created from it: the cluster may be
# deleted, and its pods with it.
_FRESH_SECONDS = 5.0
LOOK_SECONDS = 30.0  # between two looks at a cluster that gets no pods: perhaps no event told of its end
_Parsed = TypeVar("_Parsed")


class Change(Enum):
    """The difference of a newer copy."""

    NONE = auto()
    EDIT = auto()
    DELETION = auto()
    OLDER = auto()  # it came late, or is that of a backup that was restored


class ParsedOnce(Generic[_Parsed]):
    """What the copies of one object are parsed to: once for a generation and its spec, also one that is invalid.

    A parse stops everybody for as long as its spec is large, and whoever may write an annotation may have a pass made.
    A generation alone does not tell: that of a restored backup may have another spec.

    Args:
        parse: raises InvalidSpecError.
        parse_again: what metadata and status say in a newer copy, beside the spec of the one before.
    """

    def __init__(self, parse: Callable[[Json], _Parsed], parse_again: Callable[[Json, _Parsed], _Parsed]) -> None:
        self._parse = parse
        self._parse_again = parse_again
        self._body: Json | None = None  # the last copy, of which one of these is:
        self._parsed: _Parsed | None = None
        self._why_invalid: str | None = None

    def get(self, body: Json) -> _Parsed:
        """Parse this copy.

        Raises:
            InvalidSpecError: as `parse`.
        """
        if self._body is not body:
            is_same = self._body is not None and _has_same_spec(self._body, body)
            if not is_same:
                self._body = None  # a defect may end the parse
                self._parse_anew(body)
            elif self._parsed is not None:
                self._parsed = self._parse_again(body, self._parsed)
            self._body = body
        if self._parsed is None:
            raise InvalidSpecError(self._why_invalid)  # a new one: each raise makes an error's traceback longer
        return self._parsed

    def _parse_anew(self, body: Json) -> None:
        self._parsed = self._why_invalid = None
        try:
            self._parsed = self._parse(body)
        except InvalidSpecError as error:
            self._why_invalid = str(error)


def _has_same_spec(one: Json, other: Json) -> bool:
    """Whether two copies have the same uid, generation and spec."""
    ids = [(body["metadata"]["uid"], body["metadata"].get("generation")) for body in (one, other)]
    try:
        return ids[0] == ids[1] and bool(one.get("spec") == other.get("spec"))
    except RecursionError:  # it is too deep, which only the parse says
        return False


class ResourceCopy:
    """The copy. `body`: the newest. `version`: the newest that is known, be it our own status write's.

    `status_is_newer`: the body came after our last write, so its status may be somebody else's. `has_older`: an
    older copy came, and only the API server knows which is valid.
    """

    def __init__(self, context: Context, body: Json) -> None:
        self.body = body
        self.version = str(body["metadata"].get("resourceVersion", "0"))
        self.status_is_newer = self.has_older = False
        self._refreshed_version = ""  # the version of the last refresh
        self._context = context
        self._seen_at = context.clock()
        self._parsed: ParsedOnce[Cluster] = ParsedOnce(parse, parse_again)
        self._doubtful = False  # a pod was lost since the last refresh

    @property
    def key(self) -> str:
        """The resource's `namespace/name`."""
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"

    @property
    def identity(self) -> Identity:
        """The resource's name, namespace and uid."""
        metadata = self.body["metadata"]
        return Identity(metadata["name"], metadata["namespace"], metadata["uid"])

    def update(self, body: Json) -> Change:
        """Keep a newer copy, or the one of a refresh. Where an older one came the API server has to be asked first.

        An answer may be overtaken by the event of an annotation, which changes no generation.
        """
        old, new = self.body["metadata"], body["metadata"]
        if age(new) < age(old) and new.get("resourceVersion") != self._refreshed_version:
            if _wishes(body) == _wishes(self.body):
                return Change.NONE  # of an older status: ours is newer
            self.has_older = True
            return Change.OLDER
        self._refreshed_version = ""  # it holds once: its event may come later than a newer one
        is_edited = old.get("generation") != new.get("generation") or body.get("spec") != self.body.get("spec")
        if int(new.get("resourceVersion", 0)) > int(self.version):  # else its event comes late
            self.version = str(new["resourceVersion"])
            self.status_is_newer = True
        self.body, self._seen_at = body, self._context.clock()
        if is_edited:
            return Change.EDIT
        return Change.DELETION if "deletionTimestamp" in new else Change.NONE

    def status_written(self, answer: Json) -> None:
        """Keep the version that the answer to our own status write has, where no event of a later write came before."""
        self.version = max(self.version, str(answer["metadata"]["resourceVersion"]), key=int)

    def mark_doubtful(self) -> None:
        """Refresh the copy before the next creation: an object was lost, perhaps because the cluster was deleted."""
        self._doubtful = True

    def cluster(self) -> Cluster:
        """Parse the copy.

        Raises:
            InvalidSpecError: as `parse`.
        """
        return self._parsed.get(self.body)

    async def refresh_if_old(self, seconds: float = _FRESH_SECONDS) -> Json | None:
        """Get the resource, where the copy is older than `seconds`, or in doubt; None where it is not.

        By default that is where it may be too old to create pods from.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        if not self._doubtful and self._context.clock() - self._seen_at < seconds:
            return None
        return await self.refresh()

    async def refresh(self) -> Json:
        """Get the resource as it is now.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        before = self.body
        metadata = before["metadata"]
        try:
            body = await self._context.api.get_cluster(metadata["namespace"], metadata["name"])
        except ApiError as error:
            if error.not_found:
                cluster = Identity(metadata["name"], metadata["namespace"], metadata["uid"])
                await self._context.api.confirm_gone(cluster, error, after_seconds=self._context.recheck_seconds)
            raise
        if body["metadata"]["uid"] != metadata["uid"]:
            raise ClusterGoneError
        self._doubtful = self.has_older = False
        version = str(body["metadata"]["resourceVersion"])
        if self.body is not before and age(body["metadata"]) < age(self.body["metadata"]):
            return self.body  # something newer came meanwhile
        if version != self.version:  # also where it is an older one, as after a restored backup
            self.version, self.status_is_newer = version, True
        self._refreshed_version = version
        return body


def _wishes(body: Json) -> tuple[Any, ...]:
    """What people say of a resource, and how: all but its status."""
    metadata = body["metadata"]
    said = (metadata.get(key) for key in ("generation", "labels", "annotations", "deletionTimestamp"))
    return (body.get("spec"), *said)


def age(metadata: Json) -> tuple[int, int]:
    """By which two copies are compared: after a restored backup a newer spec may have an older version."""
    return metadata.get("generation", 0), int(metadata.get("resourceVersion", 0))


class LatestCopy:
    """The newest copy of a job or cron job. `seen_at`: when it came, by the operator's clock.

    `is_confirmed`: whether the API server has said since that there was no newer one. Until then it is a cache's, which
    may be of any age: of before what another operator did that led until now.

    `bounded`: what may be kept of an answer; of events the cache has kept no more.
    """

    def __init__(self, context: Context, body: Json, bounded: Callable[[Json], Json]) -> None:
        self._context = context
        self.is_confirmed = False
        self._bounded = bounded
        self._keep(body)

    def update(self, body: Json) -> bool:
        """Keep an event's copy, or an answer's to our own write, where it is newer; whether it is.

        The event of an edit may overtake the answer to a write that was made before.
        """
        is_newer = int(body["metadata"]["resourceVersion"]) > int(self.version)
        if is_newer:
            self._keep(body)
        return is_newer

    def is_too_old(self, *, makes: bool, ends: bool) -> bool:
        """Whether to refresh it before something is made for it, or anything else is done: it may be gone, or edited.

        What is made waits at a gate, or can be deleted again. What is ended does not come back.
        """
        return (ends and not self.is_confirmed) or (makes and self._context.clock() - self.seen_at > _FRESH_SECONDS)

    def written(self, answer: Json) -> bool:
        """The same for the answer to our own write, which is refused where the version that it is made from is old."""
        self.is_confirmed = True
        return self.update(self._bounded(answer))

    async def refresh(self, get: Callable[[], Awaitable[Json]]) -> None:
        """Have the copy that `get` has; an older one, as after a restored backup, where nothing else came meanwhile.

        Raises:
            ClusterGoneError: it was deleted, and no event came.
            ApiError: the API server refuses, or could not be reached.
        """
        before = self.body
        body = self._bounded(await confirmed(get, before["metadata"]["uid"], self._context.recheck_seconds))
        self.is_confirmed = True
        if self.body is before:
            self._keep(body)
        else:
            self.update(body)

    def _keep(self, body: Json) -> None:
        self.body, self.version = body, str(body["metadata"]["resourceVersion"])
        self.seen_at = self._context.clock()
