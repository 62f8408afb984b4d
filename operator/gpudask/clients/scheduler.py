"""The preload's routes in a Dask scheduler (docs/preload-protocol.md).

A scheduler runs its user's code, so it may answer anything, at any pace. It gets no redirect followed, no byte more
than an honest answer has, and no time beyond the deadline; what it says is quoted.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import aiohttp

from gpudask.api.json_object import Json
from gpudask.api.quote import quote
from gpudask.clients.bounded_http import LengthError, body_length, new_session
from gpudask.clients.bounded_json import BadJsonError, loads
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.scaling.demand import PROTOCOL, Demand, UnknownProtocolError, parse, parse_health, parse_refusals

_CONNECT_SECONDS = 5.0
# A scheduler that unpickles a large graph answers nothing for seconds; longer silence is a lost connection.
SILENCE_SECONDS = 60.0
# What is wanted is told between the polls, and the cluster waits for it: better tried again soon.
_TELL_SECONDS = 10.0
# An honest scheduler with 1,000 workers and 1,000 requirements, all talkative, answers 1.1 MB and 42,000 values.
ANSWER_BYTES, _VALUES = 5_000_000, 200_000
_REFUSAL_BYTES = 4_096
# Up to here an answer takes no turn. Of longer ones few are in memory at a time, and for a namespace's own time.
_SMALL_BYTES = 65_536
_LARGE_AT_ONCE = 2
_BODY_SECONDS = 20.0


class SchedulerClient:
    """All schedulers, without a limit of connections: each holds a poll open."""

    def __init__(self, may_tell: Callable[[], bool] = lambda: True, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._may_tell = may_tell  # of several operators one may
        self._silence_seconds = silence_seconds
        self._session: aiohttp.ClientSession | None = None
        self._large: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def demand(self, base: str, token: str, *, seen: str, wait_seconds: float, namespace: str = "") -> Demand:
        """The demand, when it is no longer version `seen`, or after `wait_seconds`.

        `namespace`: the cluster's. The long answers of one namespace are read in turn.

        Raises:
            SchedulerError: no answer, or none that can be acted on.
        """
        query = {"seen": seen, "wait": f"{wait_seconds:g}"}
        url, seconds = f"{base}/gpudask/v1/demand", wait_seconds + self._silence_seconds
        try:
            answer, length = await self._request("GET", url, token, seconds, namespace=namespace, params=query)
        except SchedulerError as error:
            if error.trouble is not SchedulerTrouble.NO_PRELOAD:
                raise
            raise SchedulerError(error.trouble, await self._why_no_preload(base, token)) from error
        try:
            return parse(answer, answer_bytes=length)
        except UnknownProtocolError as error:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, str(error)) from error

    async def desire(self, base: str, token: str, desired: Json) -> dict[str, str]:
        """Tell what is wanted, whole; why which pods (by Dask name) were not retired.

        Raises:
            SchedulerError: no answer, or a refusal.
        """
        if not self._may_tell():
            raise SchedulerError(SchedulerTrouble.REFUSED, "another operator acts, this one stands by")
        body = {"protocol": PROTOCOL, **desired}
        answer, _ = await self._request("POST", f"{base}/gpudask/v1/desired", token, _TELL_SECONDS, json=body)
        try:
            return parse_refusals(answer)
        except UnknownProtocolError as error:
            raise SchedulerError(SchedulerTrouble.PROTOCOL, str(error)) from error

    async def _why_no_preload(self, base: str, token: str) -> str:
        """The last line of what the preload left on its health route; where even that is missing, where to look."""
        try:
            health, _ = await self._request("GET", f"{base}/gpudask/v1/health", token, _TELL_SECONDS)
            why = parse_health(health)
        except (SchedulerError, UnknownProtocolError):
            return "the scheduler runs without the preload: its arguments were changed, or its log says why"
        return f"the preload did not start in the scheduler: {why or 'its log says why'}"

    async def _request(
        self, method: str, url: str, token: str, seconds: float, *, namespace: str = "", **kwargs: Any
    ) -> tuple[Any, int]:
        """The JSON of an answer, and its length in bytes."""
        if self._session is None:
            self._session = new_session()
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
        kwargs |= {"headers": {"Authorization": f"Bearer {token}"}, "timeout": timeout, "allow_redirects": False}
        try:
            # One deadline for all of it, which bytes that trickle do not stretch. Not aiohttp's own: it ends no wait
            # for a turn.
            async with asyncio.timeout(seconds), self._session.request(method, url, **kwargs) as response:
                if response.status != HTTPStatus.OK:
                    raise await _refusal(response, url)
                body = await self._read(response, namespace)
            return loads(body, values=_VALUES), len(body)
        except (LengthError, BadJsonError) as error:
            said = f"the answer of the scheduler is not the preload's: {quote(str(error))}"
            raise SchedulerError(SchedulerTrouble.PROTOCOL, said) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            said = quote(str(error)) or type(error).__name__
            raise SchedulerError(SchedulerTrouble.UNREACHABLE, f"the scheduler does not answer: {said}") from None

    async def _read(self, response: aiohttp.ClientResponse, namespace: str) -> bytes:
        if response.content_type != "application/json":
            raise BadJsonError(f"expected application/json, got {response.content_type}")
        if body_length(response, ANSWER_BYTES) <= _SMALL_BYTES:
            return await response.read()
        turns = self._large.setdefault(namespace, asyncio.Semaphore(_LARGE_AT_ONCE))
        async with turns, asyncio.timeout(_BODY_SECONDS):
            return await response.read()


async def _refusal(response: aiohttp.ClientResponse, url: str) -> SchedulerError:
    if response.status == HTTPStatus.UNAUTHORIZED:
        return SchedulerError(
            SchedulerTrouble.UNAUTHORIZED, "the scheduler refuses the token: it was made with another key"
        )
    if response.status == HTTPStatus.NOT_FOUND:
        return SchedulerError(
            SchedulerTrouble.NO_PRELOAD,
            "the preload did not start in the scheduler: its log and /gpudask/v1/health say why",
        )
    if response.status < HTTPStatus.BAD_REQUEST:
        said = f"{url}: {response.status}: expected 200, and no redirect"
        return SchedulerError(SchedulerTrouble.PROTOCOL, said)
    text = quote((await response.content.read(_REFUSAL_BYTES)).decode(errors="replace"))
    return SchedulerError(SchedulerTrouble.REFUSED, f"{url}: {response.status}: {text or 'without a word'}")
