"""What a watch tells just after a silence may be as old as that, however much of it there is."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.clients.reflector import Reflector
from gpudask.clients.clock import Silence
from tests.clients.test_reflector import Item, Script, event


async def test_all_of_a_burst_may_have_happened_since_the_silence_before_it_began():
    """The connection was cut, or the process was frozen: a stamp in the second event is as late as one in the first."""
    made, since = SimpleNamespace(now=100.0), {}

    def events() -> Iterator[Any]:
        made.now = 142.0
        for number in range(3):
            yield event("ADDED", f"burst-{number}", 10 + number)
            made.now += 0.01
        for number, made.now in enumerate((142.5, 143.0, 143.9, 144.8, 145.7, 146.6, 147.5, 148.4, 149.3)):
            yield event("ADDED", f"then-{number}", 20 + number)

    def merge(item: Item, _before: Item | None, known: float) -> Item:
        since[item.uid] = known
        return item

    script = Script([([], 1)], [events()])
    reflector: Reflector[Item] = Reflector(
        script,  # type: ignore[arg-type]
        "/pods",
        label="l",
        reduce=lambda b: Item(b["metadata"]["uid"], b["owner"], b["metadata"]["resourceVersion"]),
        on_change=lambda _: None,
        merge=merge,
        clock=lambda: made.now,
    )
    async for _ in _until_known(reflector, script):
        pass
    assert {since[f"burst-{number}"] for number in range(3)} == {100.0}
    assert since["then-8"] == pytest.approx(148.4), "it has caught up"


async def _until_known(reflector: Reflector[Item], script: Script) -> Any:
    version = await reflector._start_version("")
    async for reached in reflector._watch(version):
        yield reached
    assert not script.watches


def test_a_moment_without_news_is_no_silence():
    silence = Silence()
    silence.ends(10.0, 10.5)
    assert silence.known_since(10.5, 10.6) == 10.5
    silence.ends(10.6, 50.0)
    assert silence.known_since(50.0, 50.1) == 10.6
    assert silence.known_since(56.0, 56.1) == 56.0
