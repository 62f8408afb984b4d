"""kopf survives minutes of an API server that is unavailable or refuses; after other errors it is restarted."""

from __future__ import annotations

import itertools
from typing import Any

import kopf
import pytest

from gpudask import handlers
from gpudask.clients.clock import Clock
from gpudask.clients.errors import ApiError
from gpudask.handlers import Backoffs, configure, register
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.builders import a_pool
from tests.planning.builders import cluster, pod


def test_kopf_never_gives_up_a_request():
    settings = kopf.OperatorSettings()
    configure(settings)
    backoffs = settings.networking.error_backoffs
    assert not hasattr(backoffs, "__len__"), "kopf takes what has a length to be finite"
    pauses = list(itertools.islice(iter(backoffs), 1000))  # type: ignore[arg-type]
    assert len(pauses) == 1000
    assert max(pauses) == 30, "whoever comes back is found again within half a minute"
    assert sum(pauses[:4]) < 10, "a short restart costs little"


def test_each_request_begins_with_the_shortest_pause():
    backoffs = Backoffs()
    assert next(iter(backoffs)) == next(iter(backoffs)) == 0.5


async def test_an_api_server_that_refuses_at_start_is_asked_again_soon_and_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
):
    """kopf prints a traceback of every other error, which people take for one."""
    operator = Operator(Settings(health_port=0))

    async def refused() -> None:
        raise ApiError(500, "InternalError", "etcd is away", "GET /apis/gpudask.dev")

    monkeypatch.setattr(operator, "start", refused)
    handlers = {handler.id: handler.fn for handler in register(operator)._activities.get_all_handlers()}
    try:
        with pytest.raises(kopf.TemporaryError, match="etcd is away") as told:
            await handlers["register.<locals>.start"](settings=kopf.OperatorSettings())
        assert told.value.delay == 3
    finally:
        await handlers["register.<locals>.stop"]()


class Kopf:
    """kopf that ends as the test says: with an error each, or because it was told to; "anew": by us."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *ends: Exception | str | None, cannot_start: str = "") -> None:
        self.ends = list(ends)
        self.pauses: list[float] = []
        self.operators: list[Any] = []
        self._cannot_start = cannot_start
        monkeypatch.setattr(handlers, "_run_once", self._run_once)
        monkeypatch.setattr(handlers.time, "sleep", self.pauses.append)

    def _run_once(self, operator: Any) -> None:
        self.operators.append(operator)
        operator.cannot_start = self._cannot_start
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        if end is not None:
            operator.must_restart.set()


def test_an_error_that_ends_kopf_begins_it_anew_ever_slower(monkeypatch: pytest.MonkeyPatch):
    ours = Kopf(monkeypatch, *[ValueError("half a line")] * 8, None)
    handlers.run(Settings())
    assert ours.pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(set(map(id, ours.operators))) == 9, "nothing of the last one is left over"


def test_where_a_backup_was_restored_it_begins_anew(monkeypatch: pytest.MonkeyPatch):
    ours = Kopf(monkeypatch, "anew", None)
    handlers.run(Settings())
    assert ours.pauses == [1]
    assert len(set(map(id, ours.operators))) == 2, "nothing of the last one is left over"


def test_kopf_ends_when_the_operator_has_to_begin_anew(monkeypatch: pytest.MonkeyPatch):
    told: list[Any] = []
    monkeypatch.setattr(handlers.kopf, "run", lambda **given: told.append(given["stop_flag"]))
    operator = handlers.Operator(Settings())
    handlers._run_once(operator)
    assert told == [operator.must_restart]


def test_told_to_end_it_ends(monkeypatch: pytest.MonkeyPatch):
    ours = Kopf(monkeypatch, None)
    handlers.run(Settings())
    assert ours.pauses == []


def test_what_somebody_has_to_mend_ends_it_with_its_message(monkeypatch: pytest.MonkeyPatch):
    Kopf(monkeypatch, RuntimeError("install the CRD"), cannot_start="install the CRD")
    with pytest.raises(RuntimeError, match="install the CRD"):
        handlers.run(Settings())


def test_a_pod_that_a_list_shows_to_be_gone_was_there_while_the_api_server_answered_nobody(
    monkeypatch: pytest.MonkeyPatch,
):
    operator, gone, passed = Operator(Settings()), [], 100.0
    monkeypatch.setattr(operator.registry, "pod_gone", gone.append)
    clock = Clock(monotonic=lambda: passed, wall=lambda: 1000.0 + passed)
    clock.response_missed(passed)
    passed = 130.0
    for since in (1090.0, 1120.0, 0.0):  # the last: a watch told it
        operator._pod_gone(clock, pod(cluster(a_pool()), "cpu"), since)
    assert [each.there_at for each in gone] == [1100.0, 1120.0, 0.0]
