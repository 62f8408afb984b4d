"""An attack as data: what its user sends, which scheduler waits for the operator, and what should come of it."""

from __future__ import annotations

from gpudask.api import Json

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any

import aiohttp

from gpudask.api.resource import API_VERSION, PLURAL

# Stands in all text of the attackers: where it is found, text of theirs has come.
MARK = "mallory-was-here"
OWN = "own"  # the attackers' cluster that is there, and runs


class Expected(Enum):
    """The expected outcome of an attack."""

    REFUSED = "refused"  # by the API server, each request
    HARMLESS = "harmless"  # it is let in, and nobody else feels it


@dataclass(frozen=True)
class Request:
    """One request to the API server. `@NAMESPACE@`, `@OWN_UID@`, ... are filled in; bytes are sent as they are."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Attack:
    """One attack.

    Args:
        name: words that are its own among all attacks.
        section: which kind of thing is attacked.
        requests: what is sent, one after another.
        acts: what goes on beside the victim, until it is told to end.
        schedulers: cluster -> whose answers its scheduler gives (`impostor.ANSWERS`).
        seconds: how long it has to last before the victim is looked at.
        heavy: too much for a short run.
        starves_itself: afterwards its own namespace gets no scheduler for a while.
    """

    name: str
    section: str
    requests: tuple[Request, ...] = ()
    acts: Callable[[Attacker], Coroutine[Any, Any, None]] | None = None
    schedulers: Mapping[str, str] = field(default_factory=dict)
    expected: Expected = Expected.HARMLESS
    seconds: float = 0.0
    heavy: bool = False
    starves_itself: bool = False


class Attacker:
    """One attack's user, with rights of his own. `admitted`, `refused`: how many requests were; `said`: the last no."""

    def __init__(self, session: aiohttp.ClientSession, known: Mapping[str, str]) -> None:
        self._session = session
        self.known = known
        self.admitted = 0
        self.refused = 0
        self.said = ""

    async def send(self, request: Request) -> Json | None:
        """What the API server answers; None: it refused, or was too busy."""
        body = request.body
        if body is not None and not isinstance(body, bytes):
            body = self._filled(json.dumps(body)).encode()
        headers = {"Content-Type": request.content_type, **request.headers}
        try:
            async with self._session.request(
                request.method, self._filled(request.path), params=request.query, data=body, headers=headers
            ) as response:
                answer = _parsed(await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            self.said = f"{type(error).__name__}: {error}"[:200]
            return None
        if response.status < HTTPStatus.BAD_REQUEST:
            self.admitted += 1
            return answer
        self.said = f"{response.status} {answer.get('message', '')}"[:200]
        if response.status < HTTPStatus.INTERNAL_SERVER_ERROR and response.status != HTTPStatus.TOO_MANY_REQUESTS:
            self.refused += 1
        return None

    def _filled(self, text: str) -> str:
        for key, value in self.known.items():
            text = text.replace(key, value)
        return text


def _parsed(body: bytes) -> Json:
    """An answer; nothing of one that is too deep for Python, as the attackers' own objects may be."""
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError, RecursionError):
        return {}


def path(plural: str, name: str = "", *, namespace: str = "@NAMESPACE@", group: str = "") -> str:
    """Where objects of a kind are, or one of them, with a subresource if its name has one."""
    if plural.split("/", maxsplit=1)[0] == PLURAL:
        group = API_VERSION
    root = f"/apis/{group}" if group else "/api/v1"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{plural}" + (f"/{name}" if name else "")


def create(plural: str, body: Json, **where: str) -> Request:
    """`kubectl create`."""
    return Request("POST", path(plural, **where), body)


def merge(plural: str, name: str, body: Json, **where: str) -> Request:
    """`kubectl patch --type=merge`."""
    return Request("PATCH", path(plural, name, **where), body, "application/merge-patch+json")


def delete(plural: str, name: str, **where: str) -> Request:
    """`kubectl delete --wait=false`."""
    return Request("DELETE", path(plural, name, **where))


def read(plural: str, name: str = "", **where: str) -> Request:
    """`kubectl get`."""
    return Request("GET", path(plural, name, **where))
