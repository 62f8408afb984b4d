"""A second look at an object whose write, or whose read, the API server answered as if it had changed or were gone.

Such an answer may be wrong: an API server that starts says 404 of what exists, and a conflict may be that of a request
beside ours. Who takes it as the truth waits for a watch event that never comes, or forgets what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gpudask.api import Json
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.reflector import Caches

Get = Callable[[], Awaitable[Json]]
_MISSED_KEPT = 1000
RECHECK_SECONDS = 1.0  # between two such looks


class Missed:
    """What a request did not find: it is gone where one that comes a moment later does not find it, either.

    For who cannot wait in between. The last ones are remembered.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # by key

    async def get(self, key: str, get: Get, now: float, after_seconds: float) -> Json | None:
        """The object as `get` has it; None: it does not exist, as was said so many seconds ago or earlier, too.

        `key`: by which it is remembered. `now`: in seconds, of one clock.

        Raises:
            ApiError: the request failed, or did not find it for the first time.
        """
        try:
            body = await get()
        except ApiError as error:
            if not error.object_not_found or now < self._note(key, now) + after_seconds:
                raise
            return None
        self._since.pop(key, None)
        return body

    def _note(self, key: str, now: float) -> float:
        """Note that it was not found; since when it is not."""
        since = self._since[key] = self._since.pop(key, now)
        if len(self._since) > _MISSED_KEPT:
            del self._since[next(iter(self._since))]
        return since


async def found(get: Get, after_seconds: float) -> Json | None:
    """The object as `get` has it; None: it does not exist, which a second request said, too.

    Raises:
        ApiError: the API server refuses, or could not be reached.
    """
    for is_last in (False, True):
        try:
            return await get()
        except ApiError as error:
            if not error.object_not_found:
                raise
        if not is_last:
            await asyncio.sleep(after_seconds)
    return None


async def confirmed(get: Get, uid: str, after_seconds: float) -> Json:
    """The object with this `uid` as `get` has it, asked twice before it counts as gone.

    Raises:
        ClusterGoneError: it does not exist any more, whatever its kind.
        ApiError: the API server refuses, or could not be reached.
    """
    body = await found(get, after_seconds)
    if body is None or body["metadata"]["uid"] != uid:
        raise ClusterGoneError
    return body


async def changed(
    get: Get, *, uid: str, version: str, error: ApiError, after_seconds: float = RECHECK_SECONDS
) -> Json | None:
    """The object with this `uid` after a write to it that got `error`; None: it is gone, as two answers say.

    `version`: that it had as the write was decided.

    Raises:
        ApiError: `error`, where it is as it was: no event comes that would have it tried again; or the look failed.
    """
    try:
        body: Json | None = await get()
    except ApiError as again:
        if not again.object_not_found:
            raise
        body = None if error.not_found else await found(get, after_seconds)  # a conflict says that it is there
    if body is None or body["metadata"]["uid"] != uid:
        return None
    if str(body["metadata"]["resourceVersion"]) == version:
        raise error
    return body


async def look_again(
    get: Get,
    caches: Caches,
    namespace: str,
    *,
    uid: str,
    version: str,
    error: ApiError,
    after_seconds: float = RECHECK_SECONDS,
) -> Json | None:
    """As `changed`. What is new is kept in `caches`, and what is gone forgotten; they wake who waits for that.

    Raises:
        ApiError: as `changed`; `error` also where it cannot be read.
    """
    body = await changed(get, uid=uid, version=version, error=error, after_seconds=after_seconds)
    if body is None:
        caches.forget(namespace, uid)
    elif not caches.upsert(namespace, body):
        raise error
    return body
