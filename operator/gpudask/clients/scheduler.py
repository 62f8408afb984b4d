"""The preload's routes in a Dask scheduler (docs/preload-protocol.md)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import aiohttp

from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.scaling.demand import PROTOCOL, Demand, UnknownProtocolError, parse

Json = dict[str, Any]
_CONNECT_SECONDS = 5.0
# A scheduler that unpickles a large graph answers nothing for seconds; longer silence is a lost connection.
_SILENCE_SECONDS = 60.0
# What is wanted is told between the polls, and the cluster waits for it: better tried again soon.
_TELL_SECONDS = 10.0


class SchedulerClient:
    """All schedulers, through one connection pool without a limit: each holds a poll open."""

    def __init__(self, may_tell: Callable[[], bool] = lambda: True) -> None:
        self._may_tell = may_tell  # of several operators one may
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def demand(self, base: str, token: str, *, seen: str, wait_seconds: float) -> Demand:
        """The demand, when it is no longer version `seen`, or after `wait_seconds`.

        Raises:
            SchedulerError: no answer, or none that can be acted on.
        """
        query = {"seen": seen, "wait": f"{wait_seconds:g}"}
        try:
            answer = await self._request(
                "GET", f"{base}/gpudask/v1/demand", token, wait_seconds + _SILENCE_SECONDS, params=query
            )
        except SchedulerError as error:
            if error.trouble is not SchedulerTrouble.NO_PRELOAD:
                raise
            raise SchedulerError(error.trouble, await self._why_no_preload(base, token)) from error
        try:
            return parse(answer)
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
        answer = await self._request("POST", f"{base}/gpudask/v1/desired", token, _TELL_SECONDS, json=body)
        return {item["pod"]: item["why"] for item in answer.get("refused", ())}

    async def _why_no_preload(self, base: str, token: str) -> str:
        """The last line of what the preload left on its health route; where even that is missing, where to look."""
        try:
            health = await self._request("GET", f"{base}/gpudask/v1/health", token, _TELL_SECONDS)
        except SchedulerError:
            return "the scheduler runs without the preload: its arguments were changed, or its log says why"
        lines = str(health.get("error", "")).strip().splitlines()
        return f"the preload did not start in the scheduler: {lines[-1] if lines else 'its log says why'}"

    async def _request(self, method: str, url: str, token: str, seconds: float, **kwargs: Any) -> Json:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with self._session.request(method, url, headers=headers, timeout=timeout, **kwargs) as response:
                if response.status == HTTPStatus.OK:
                    return dict(await response.json())
                raise _refusal(response.status, await response.text(), url)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            said = str(error) or type(error).__name__
            raise SchedulerError(SchedulerTrouble.UNREACHABLE, f"the scheduler does not answer: {said}") from error


def _refusal(status: int, text: str, url: str) -> SchedulerError:
    if status == HTTPStatus.UNAUTHORIZED:
        return SchedulerError(
            SchedulerTrouble.UNAUTHORIZED, "the scheduler refuses the token: it was made with another key"
        )
    if status == HTTPStatus.NOT_FOUND:
        return SchedulerError(
            SchedulerTrouble.NO_PRELOAD,
            "the preload did not start in the scheduler: its log and /gpudask/v1/health say why",
        )
    return SchedulerError(SchedulerTrouble.REFUSED, f"{url}: {status}: {text[:500]}")
