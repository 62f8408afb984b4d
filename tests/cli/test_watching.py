"""Following clusters over requests that fail: what passes is waited out and told, what does not ends it."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from gpudask.cli import watch
from gpudask.kubecluster.errors import KubeClusterError


def a_body(name: str, version: int, uid: str = "") -> Json:
    return {"metadata": {"name": name, "uid": uid or f"uid-of-{name}", "resourceVersion": str(version)}}


def failed(status: int, reason: str = "it restarts") -> KubeClusterError:
    return KubeClusterError("cannot list", reason=reason, next_step="", status=status, unanswered=status == 0)


class Scripted:
    """A server that answers looks and watches as it is told, one after the other; at the end it waits for ever."""

    def __init__(self, looks: list[Any], watches: list[list[Any]]) -> None:
        self._looks, self._watches = iter(looks), iter(watches)

    async def find(self, *_: str) -> Any:
        return await self._next(self._looks)

    async def call(self, *_: str, **__: Any) -> Json:
        items = await self._next(self._looks)
        return {"metadata": {"resourceVersion": "1"}, "items": items}

    async def changes(self, _: str, **__: Any) -> AsyncIterator[Any]:
        for event in next(self._watches, [None]):
            yield await self._next(iter([event]))

    async def _next(self, script: Iterator[Any]) -> Any:
        answer = next(script, None)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer or None


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_LEAST_PAUSE_SECONDS", 0.0)


async def followed(server: Scripted, count: int, names: list[str]) -> list[tuple[str, str, bool]]:
    """The first `count` that are told."""
    told = []
    async with asyncio.timeout(60), aclosing(watch.follow(server, names)) as changes:  # type: ignore[arg-type,type-var]
        async for body, there in changes:
            told.append((body["metadata"]["name"], body["metadata"]["resourceVersion"], there))
            if len(told) == count:
                break
    return told


@pytest.mark.parametrize("status", [0, 429, 500, 503, 504])
async def test_a_look_that_fails_is_told_once_and_tried_again(status: int, capsys: pytest.CaptureFixture[str]):
    server = Scripted([failed(status), failed(status), [a_body("demo", 1)]], [])

    assert await followed(server, 1, []) == [("demo", "1", True)]
    assert capsys.readouterr().err.splitlines() == [
        "the API server does not answer, trying again: it restarts",
        "the API server answers again",
    ]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_look_that_is_refused_ends_it(status: int):
    with pytest.raises(KubeClusterError, match="it restarts"):
        await followed(Scripted([failed(status)], []), 1, [])


@pytest.mark.parametrize(
    "broken", [failed(0), failed(410), failed(403), failed(503), json.JSONDecodeError("cut off", "", 0)]
)
async def test_a_watch_that_breaks_loses_nothing(broken: Exception, capsys: pytest.CaptureFixture[str]):
    looks = [[a_body("demo", 1), a_body("old", 1)], [a_body("demo", 3), a_body("new", 1)]]
    server = Scripted(looks, [[("MODIFIED", a_body("demo", 2)), broken]])

    assert await followed(server, 6, []) == [
        ("demo", "1", True),
        ("old", "1", True),
        ("demo", "2", True),
        ("old", "1", False),
        ("demo", "3", True),
        ("new", "1", True),
    ]
    assert capsys.readouterr().err == "", "what is mended by the next look is not worth a word"


async def test_a_watch_that_is_refused_for_good_ends_it():
    with pytest.raises(KubeClusterError, match="it restarts"):
        await followed(Scripted([[a_body("demo", 1)]], [[failed(401)]]), 2, [])


async def test_a_watch_that_is_silent_for_too_long_is_begun_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "_SILENCE_SECONDS", 0.05)
    server = Scripted([[a_body("demo", 1)], [a_body("demo", 2)]], [])

    assert await followed(server, 2, []) == [("demo", "1", True), ("demo", "2", True)]


async def test_one_that_is_made_anew_is_another(monkeypatch: pytest.MonkeyPatch):
    server = Scripted([a_body("demo", 1), a_body("demo", 5, uid="second")], [[]])

    assert await followed(server, 3, ["demo"]) == [("demo", "1", True), ("demo", "1", False), ("demo", "5", True)]


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "_LEAST_PAUSE_SECONDS", 3600.0)
    server = Scripted([[a_body("demo", 1)], [a_body("demo", 2)]], [[]])
    changes = watch.follow(server, [])  # type: ignore[arg-type]
    assert (await anext(changes))[0]["metadata"]["resourceVersion"] == "1"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(changes), 0.5)
