"""What a leaving worker is asked of its results: an answer, silence, slow values, and the drain's end just then."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gpudask.preload.drains import result_evacuation as under_test
from gpudask.preload.drains import gpu_results
from gpudask.preload.drains.result_evacuation import Examination

from .cluster import until

ADDRESS = "tcp://10.0.0.1:40000"
RESULT: Any = SimpleNamespace(key="x")


class AskedWorker:
    """A worker that answers when the test says so."""

    def __init__(self, result: Any = None) -> None:
        self.result = result or {"needs": [("x", "needs cupy")], "gone": [], "slow": []}
        self.may_answer = asyncio.Event()
        self.pokes = 0
        self.asked = 0
        worker: Any = SimpleNamespace(address=ADDRESS, name="demo-gpu-worker-0")
        scheduler: Any = SimpleNamespace(broadcast=self._broadcast)
        self.examination = Examination(scheduler, worker, self._poke)

    def _poke(self) -> None:
        self.pokes += 1

    async def _broadcast(self, **_: Any) -> dict[str, Any]:
        self.asked += 1
        await self.may_answer.wait()
        self.may_answer.clear()
        return {ADDRESS: {"status": "OK", "result": self.result}}


async def test_what_it_answers_is_kept():
    worker = AskedWorker()
    assert worker.examination.need_of(RESULT) is None
    worker.may_answer.set()
    await until(lambda: worker.pokes)
    assert worker.examination.need_of(RESULT) == "needs cupy"


async def test_a_silent_worker_is_asked_again_and_people_are_told(monkeypatch):
    monkeypatch.setattr(under_test, "EXAMINE_SECONDS", 0.01)
    monkeypatch.setattr(under_test, "backoff_seconds", lambda _failures: 0.01)
    worker = AskedWorker()
    assert worker.examination.need_of(RESULT) is None
    await until(lambda: worker.examination.error)
    assert "no answer within" in worker.examination.error
    worker.may_answer.set()
    await until(lambda: worker.examination.need_of(RESULT))
    assert worker.examination.error == ""


async def test_an_answer_that_cannot_be_read_is_asked_for_again_ever_slower_and_people_are_told(monkeypatch):
    """What runs on a worker is the user's: it may say anything."""
    waits = []
    monkeypatch.setattr(under_test, "backoff_seconds", lambda failures: waits.append(failures) or 0.01)
    worker = AskedWorker(result="nonsense")
    assert worker.examination.need_of(RESULT) is None
    while not worker.examination.error:
        worker.may_answer.set()
        await asyncio.sleep(0)
    assert "its answer cannot be read: TypeError" in worker.examination.error
    await until(lambda: waits)
    assert waits == list(range(1, len(waits) + 1))
    worker.examination.stop()


@pytest.mark.parametrize("turns", range(6))
async def test_it_ends_when_told_also_while_the_answer_comes(turns):
    """So many turns of the event loop lie between the answer and who waits for it."""
    worker = AskedWorker(result={"needs": [], "gone": [], "slow": []})  # what is wanted stays so: it would ask again
    worker.examination.need_of(RESULT)
    await until(lambda: worker.asked)
    worker.may_answer.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    worker.examination.stop()
    for _ in range(5):  # what had just begun may begin
        await asyncio.sleep(0)
    asked = worker.asked
    for _ in range(50):
        worker.may_answer.set()
        await asyncio.sleep(0)
    assert worker.asked == asked


async def test_until_it_is_told_it_asks_again_for_what_it_was_not_told():
    worker = AskedWorker(result={"needs": [], "gone": [], "slow": []})
    worker.examination.need_of(RESULT)
    for asked in range(1, 5):
        await until(lambda asked=asked: worker.asked == asked)
        worker.may_answer.set()
    worker.examination.stop()


class Slow:
    """A value that is pickled once the test lets it be; it counts how often."""

    __module__ = "numpy.look_alike"  # of the allow-list
    pickled = 0
    may_be_pickled = threading.Event()

    def __reduce__(self) -> Any:
        Slow.pickled += 1
        Slow.may_be_pickled.wait(60)
        return int, ()


async def test_a_worker_answers_with_what_it_has_and_pickles_no_slow_value_twice(monkeypatch):
    now, hour = 0.0, 3600.0
    monkeypatch.setattr(gpu_results, "time", SimpleNamespace(monotonic=lambda: now))

    class Data(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            nonlocal now
            now += hour if key == "slow" else 0.0  # the time is over once it is its turn
            return super().__getitem__(key)

    worker: Any = SimpleNamespace(data=Data(a=1, slow=Slow(), b=2))
    said = await gpu_results.examine(["a", "gone", "slow", "b"], hour, worker)
    assert (dict(said["needs"]), said["gone"], said["slow"]) == ({"a": ""}, ["gone"], ["slow"])
    said = await gpu_results.examine(["b"], hour, worker)
    assert dict(said["needs"]) == {"b": ""}
    said = await gpu_results.examine(["slow"], 0.0, worker)
    assert said["slow"] == ["slow"], "it goes on"
    Slow.may_be_pickled.set()
    said = await gpu_results.examine(["slow"], hour, worker)
    assert dict(said["needs"]) == {"slow": ""}
    assert Slow.pickled == 1
