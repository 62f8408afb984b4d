"""What a leaving worker is asked of its results: an answer, silence, and the drain's end at that very moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gpudask.preload import evacuate as under_test
from gpudask.preload.evacuate import Evacuation
from tests.cancelling import ends_at_any_moment

ADDRESS = "tcp://10.0.0.1:40000"
RESULT: Any = SimpleNamespace(key="x")


class AskedWorker:
    """A worker that answers when the test says so."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        worker: Any = SimpleNamespace(address=ADDRESS, name="demo-gpu-worker-0")
        scheduler: Any = SimpleNamespace(broadcast=self._broadcast)
        self.evacuation = Evacuation(scheduler, Any, worker)

    async def _broadcast(self, **_: Any) -> dict[str, Any]:
        await self.may_answer.wait()
        self.may_answer.clear()
        return {ADDRESS: {"status": "OK", "result": {"x": "needs cupy"}}}


async def test_what_it_answers_is_kept():
    worker = AskedWorker()
    worker.may_answer.set()
    await worker.evacuation._examine([RESULT])
    assert worker.evacuation._unsafe == {"x": "needs cupy"}


async def test_a_silent_worker_is_asked_again_later(monkeypatch):
    monkeypatch.setattr(under_test, "EXAMINE_SECONDS", 0.01)
    worker = AskedWorker()
    await worker.evacuation._examine([RESULT])
    assert worker.evacuation._unsafe == {}
    assert worker.evacuation._examined_in_vain == 1
    assert "no answer within" in worker.evacuation._examine_trouble


async def test_it_ends_when_told_also_while_the_answer_comes():
    worker = AskedWorker()

    async def examine() -> None:
        worker.evacuation._unsafe.clear()
        await worker.evacuation._examine([RESULT])
        await asyncio.Event().wait()  # the drain goes on

    await ends_at_any_moment(examine, worker.may_answer.set)
