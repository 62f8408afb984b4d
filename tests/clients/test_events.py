"""Events are recorded in series, at a limited rate for each cluster, with a bounded memory."""

from __future__ import annotations

import pytest

from gpudask.api.resource import Identity
from gpudask.clients.events import EventRecorder
from tests.clients.fake_api_server import FakeApiServer

NOW = 1_800_000_000.0
DEMO = Identity("demo", "default", "uid-demo")


class Recorder:
    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.events = EventRecorder(self.server, "test")

    async def say(
        self, series: str = "s", *, now: float = NOW, cluster: Identity = DEMO, warning: bool = False
    ) -> None:
        await self.events.record(cluster, "ScaledUp", series, series=series, warning=warning, now=now)

    @property
    def writes(self) -> int:
        return len(self.server.log)

    def counts(self) -> dict[str, int]:
        """By note, how often it was said."""
        items = [body for path, body in self.server.objects.items() if "/events/" in path]
        return {item["note"]: item.get("series", {}).get("count", 1) for item in items}


@pytest.fixture
async def recorder():
    recorder = Recorder()
    yield recorder
    await recorder.server.close()


async def test_a_repetition_counts_up(recorder: Recorder):
    for _ in range(3):
        await recorder.say()
    assert recorder.counts() == {"s": 3}


@pytest.mark.parametrize("series", ["the same", "another each time"])
async def test_a_cluster_that_flaps_writes_a_burst_and_then_one_a_minute(recorder: Recorder, series: str):
    for second in range(1000):
        await recorder.say(series if series == "the same" else f"{series} {second}", now=NOW + second)
    assert recorder.writes == 25 + 1000 // 60


async def test_what_was_not_written_is_counted_all_the_same(recorder: Recorder):
    for _ in range(100):
        await recorder.say()
    assert recorder.counts() == {"s": 25}
    await recorder.say(now=NOW + 60)
    assert recorder.counts() == {"s": 101}


async def test_what_was_never_made_is_made_when_it_has_a_turn(recorder: Recorder):
    for number in range(40):
        await recorder.say(f"{number}")
    await recorder.say("39", now=NOW + 60)
    assert recorder.counts()["39"] == 1


async def test_no_scaling_hides_a_warning_nor_another_clusters_events(recorder: Recorder):
    for number in range(100):
        await recorder.say(f"{number}")
    await recorder.say("it fails", warning=True)
    await recorder.say("theirs", cluster=Identity("other", "default", "uid-other"))
    assert {"it fails", "theirs"} <= recorder.counts().keys()


async def test_after_a_rest_there_is_a_burst_and_no_more(recorder: Recorder):
    for now in (NOW, NOW + 86_400):
        for number in range(100):
            await recorder.say(f"{now} {number}", now=now)
    assert recorder.writes == 50


async def test_a_clock_that_goes_back_lets_nothing_pass_and_blocks_nothing(recorder: Recorder):
    for _ in range(100):
        await recorder.say()
    await recorder.say(now=NOW - 3600)
    assert recorder.writes == 25
    await recorder.say(now=NOW - 3600 + 60)
    assert recorder.writes == 26


async def test_what_is_remembered_has_an_end_and_goes_on_after_it(recorder: Recorder):
    await recorder.say()
    for number in range(5000):
        await recorder.say(cluster=Identity(f"c{number}", "default", f"uid-{number}"))
    assert len(recorder.events._counts) <= 4096
    assert len(recorder.events._budgets) <= 4096
    await recorder.say()
    events = [body for path, body in recorder.server.objects.items() if path.rpartition("/")[2].startswith("demo.")]
    assert [event["series"]["count"] for event in events] == [2]


async def test_of_a_cluster_that_is_gone_nothing_is_remembered(recorder: Recorder):
    other = Identity("other", "default", "uid-other")
    for cluster in (DEMO, other):
        for warning in (False, True):
            await recorder.say("s", cluster=cluster, warning=warning)
    recorder.events.forget(DEMO.uid)
    kept = recorder.events._counts, recorder.events._budgets
    assert [len(each) for each in kept] == [1, 2], "the other cluster's"
    await recorder.say("s", cluster=other)
    assert recorder.counts()["s"] == 3
