"""One candidate leads at a time, whatever happens to the API server, to the candidates and to their clocks."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable

import pytest

from gpudask.clients.errors import ApiError
from gpudask.clients.lease import Record
from gpudask.reconcile.election import Election, Timing
from tests.virtual_time import in_virtual_time, now

TIMING = Timing()
LEASE, RENEW, RETRY = TIMING.lease_seconds, TIMING.renew_seconds, TIMING.retry_seconds
PAUSE = 1.2 * RETRY  # the longest


class Server:
    """The Lease on the API server."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.versions = 0
        self.written_at = 0.0
        self.changed = asyncio.Condition()

    async def put(self, spec: Json, version: str) -> Record:
        there = self.record.version if self.record else ""
        if there != version:
            raise ApiError(409, "Conflict", "", "PATCH lease")
        self.versions += 1
        self.written_at = now()
        self.record = Record(
            spec["holderIdentity"],
            spec["leaseDurationSeconds"],
            spec["acquireTime"],
            spec["leaseTransitions"],
            str(self.versions),
        )
        async with self.changed:
            self.changed.notify_all()
        return self.record


class Link:
    """How one candidate reaches the Lease. `fault`: `refuse`, `hang`, or `lose` the answer of what was done;
    `conflict`: one write is refused, though nobody else wrote.

    `deaf`: its watch tells nothing. `rumours`: what its watch tells beside what is so.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.fault = ""
        self.deaf = False
        self.rumours: list[Record] = []

    async def get(self) -> Record | None:
        await self._pass()
        return self._server.record

    async def write(self, spec: Json, *, version: str) -> Record:
        await self._pass()
        if self.fault == "conflict":
            self.fault = ""
            raise ApiError(409, "Conflict", "", "PATCH lease")
        record = await self._server.put(spec, version)
        if self.fault == "lose":
            raise ApiError(0, "ServerDisconnectedError", "", "PATCH lease")
        return record

    async def changes(self) -> AsyncGenerator[Record]:
        while True:
            await self._pass()
            while self.rumours:
                yield self.rumours.pop()
            if self._server.record is not None and not self.deaf:
                yield self._server.record
            async with self._server.changed:
                await self._server.changed.wait()

    async def _pass(self) -> None:
        await asyncio.sleep(0.01)
        if self.fault == "refuse":
            raise ApiError(503, "ServiceUnavailable", "", "lease")
        if self.fault == "hang":
            await asyncio.Event().wait()


async def until(check: Callable[[], bool], seconds: float) -> float:
    """Wait until `check()`; how long that took."""
    began = now()
    while True:
        if check():
            return now() - began
        assert now() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.05)


class Candidate:
    """A candidate, and since when it acts; `skew` and `speed`: of its clock."""

    def __init__(self, server: Server, name: str, *, skew: float = 0.0, speed: float = 1.0) -> None:
        self.link = Link(server)
        self.name = name
        self.acts = False
        self.ends_slowly = 0.0
        self.election = Election(
            self.link, name, self._lead, self._stand_by, timing=TIMING, clock=lambda: speed * now() + skew
        )
        self.task = asyncio.create_task(self.election.run(), name=name)

    async def _lead(self) -> None:
        self.acts = True

    async def _stand_by(self) -> None:
        await asyncio.sleep(self.ends_slowly)
        self.acts = False

    async def until_it_leads(self, seconds: float = 60) -> float:
        """How long that took."""
        return await until(lambda: self.acts and self.election.leads(), seconds)

    async def until_it_ends(self, seconds: float = 60) -> float:
        """How long that took."""
        return await until(lambda: not (self.acts or self.election.leads()), seconds)

    async def stop(self) -> None:
        """A clean end."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def kill(self) -> None:
        """An end without a word: nothing that it still says arrives."""
        self.link.fault = "hang"
        await self.stop()
        self.acts = False


def test_the_numbers_agree_and_a_killed_leader_is_followed_within_ten_seconds() -> None:
    assert LEASE + 1 <= 10, "and a second to take it and to act"
    assert LEASE >= 1.5 * RENEW, "clocks whose speeds differ by a third"
    assert PAUSE + RENEW / 2 + PAUSE < RENEW - 0.5, "an attempt that hangs is not the last"


def test_the_first_leads_and_the_second_stands_by() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads(1)
        second = Candidate(server, "second")
        await asyncio.sleep(600)
        assert (first.acts, second.acts) == (True, False)
        assert server.record is not None
        assert (server.record.holder, server.record.transitions) == ("first", 0)

    in_virtual_time(story())


@pytest.mark.parametrize("fault", ["", "conflict"])
def test_after_a_clean_stop_another_leads_at_once(fault: str) -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        await asyncio.sleep(20)
        first.link.fault = fault
        await first.stop()
        assert not first.acts
        assert await second.until_it_leads() < 0.2
        assert server.record is not None
        assert server.record.transitions == 1

    in_virtual_time(story())


def test_a_stop_in_the_middle_of_a_renewal_gives_the_lease_back_too() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        first.link.fault = "lose"
        await asyncio.sleep(PAUSE + 0.1)  # it was renewed, and the answer is lost
        first.link.fault = ""
        await first.stop()
        assert server.record is not None
        assert server.record.holder == ""

    in_virtual_time(story())


def test_after_a_kill_another_leads_when_the_lease_has_run_out() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        second.link.deaf = True
        await asyncio.sleep(20)
        await first.kill()
        renewed_at = server.written_at
        await second.until_it_leads()
        assert LEASE <= now() - renewed_at < LEASE + PAUSE + 0.2

    in_virtual_time(story())


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.6, 0.9, 1.2])
def test_who_hears_the_renewals_takes_the_lease_the_moment_it_has_run_out(phase: float) -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        await asyncio.sleep(20 + phase)
        await first.kill()
        renewed_at = server.written_at
        await second.until_it_leads()
        assert LEASE <= now() - renewed_at < LEASE + 0.2

    in_virtual_time(story())


def test_a_leader_that_was_frozen_takes_no_lease_that_another_renews() -> None:
    """While it ended its work, its watch told of the other's renewal: that is not its own last write."""

    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        first.ends_slowly = 1.5
        await first.until_it_leads()
        await asyncio.sleep(20)
        first.election._clock = lambda: now() + 20.0  # as if it had been frozen for so long

        for _ in range(30):  # the other, which works
            assert server.record is not None
            spec = {"holderIdentity": "other", "leaseDurationSeconds": 9, "acquireTime": "", "leaseTransitions": 1}
            await server.put(spec, server.record.version)
            await asyncio.sleep(1.0)
            assert server.record.holder == "other"
            assert not first.election.leads()

    in_virtual_time(story())


def test_old_news_ends_no_leadership() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        for _ in range(5):
            first.link.fault = "lose"  # so that it is not certain what the Lease says
            first.link.rumours.append(Record("other", 15, "", 0, "0"))
            await asyncio.sleep(PAUSE + 0.1)
            first.link.fault = ""
            await asyncio.sleep(PAUSE + 0.1)
            assert first.acts
            assert first.election.leads()

    in_virtual_time(story())


def test_old_news_lets_nobody_take_a_lease_that_is_renewed() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        for _ in range(60):
            second.link.rumours.append(Record("first", 1, "", 0, "0"))
            await asyncio.sleep(PAUSE)
            assert first.acts
            assert not second.acts

    in_virtual_time(story())


def test_what_is_started_again_under_its_name_leads_at_once() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        await first.kill()
        again = Candidate(server, "first")
        assert await again.until_it_leads() < 0.2
        assert server.record is not None
        assert server.record.transitions == 0

    in_virtual_time(story())


@pytest.mark.parametrize("fault", ["refuse", "hang"])
def test_a_leader_that_is_cut_off_ends_before_another_begins(fault: str) -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        await asyncio.sleep(20)
        first.link.fault = fault
        assert await first.until_it_ends() <= RENEW + 0.1
        assert not second.acts
        waited = await second.until_it_leads()
        assert waited > LEASE - RENEW - PAUSE - 0.2
        first.link.fault = ""
        await asyncio.sleep(60)
        assert (first.acts, second.acts) == (False, True), "it comes back, and stands by"

    in_virtual_time(story())


def test_no_write_is_allowed_while_what_acts_still_ends() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        first.ends_slowly = 8.0
        await first.until_it_leads()
        first.link.fault = "refuse"
        await until(lambda: not first.election.leads(), RENEW + 0.1)
        assert first.acts
        assert not first.election.leads()

    in_virtual_time(story())


@pytest.mark.parametrize("fault", ["refuse", "hang", "lose"])
def test_a_short_fault_ends_no_leadership(fault: str) -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        await asyncio.sleep(20)
        for _ in range(10):
            first.link.fault = fault
            await asyncio.sleep(4)
            assert first.acts
            assert first.election.leads()
            first.link.fault = ""
            await asyncio.sleep(10)
        assert (first.acts, second.acts) == (True, False)

    in_virtual_time(story())


def test_who_finds_the_lease_in_other_hands_ends_at_its_next_renewal() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        assert server.record is not None
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": "", "leaseTransitions": 1}
        await server.put(spec, server.record.version)
        assert await first.until_it_ends() < PAUSE + 0.1

    in_virtual_time(story())


def test_a_lease_that_somebody_deleted_is_made_again_by_its_holder() -> None:
    async def story() -> None:
        server = Server()
        first = Candidate(server, "first")
        await first.until_it_leads()
        second = Candidate(server, "second")
        await asyncio.sleep(20)
        held = server.record
        assert held is not None
        server.record = Record("first", 15, "", 0, "")  # as gone: a write at its version is refused
        await asyncio.sleep(0)
        server.record = None
        await asyncio.sleep(30)
        assert first.acts != second.acts
        assert first.election.leads() != second.election.leads()

    in_virtual_time(story())


@pytest.mark.parametrize(("seconds", "expected"), [(0, LEASE), (10**9, 60.0)])
def test_a_duration_that_makes_no_sense_locks_nobody_out(seconds: int, expected: float) -> None:
    async def story() -> None:
        server = Server()
        spec = {"holderIdentity": "x", "leaseDurationSeconds": seconds, "acquireTime": "", "leaseTransitions": 0}
        await server.put(spec, "")
        waited = await Candidate(server, "first").until_it_leads(120)
        assert expected <= waited < expected + PAUSE + 0.1

    in_virtual_time(story())


def test_a_defect_in_one_attempt_ends_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        first = Candidate(Server(), "first")
        get = first.link.get

        async def broken() -> Record | None:
            monkeypatch.setattr(first.link, "get", get)
            raise ValueError("no version")

        monkeypatch.setattr(first.link, "get", broken)
        assert await first.until_it_leads() < PAUSE + 0.1

    in_virtual_time(story())


@pytest.mark.parametrize("seed", range(5))
def test_never_two_at_once_and_never_long_nobody(seed: int) -> None:
    """A quarter of an hour of kills, clean stops, cuts and lost answers; clocks a year apart, at speeds 5 % apart."""

    async def story() -> None:
        chance = random.Random(seed)  # noqa: S311 - the same each time
        server = Server()

        def another(number: int) -> Candidate:
            return Candidate(server, f"c{number}", skew=chance.uniform(-3e7, 3e7), speed=chance.uniform(0.95, 1.05))

        candidates = [another(number) for number in range(3)]
        started = 3
        quiet_until = now() + LEASE + 5 * PAUSE
        watching = asyncio.create_task(_one_at_most(candidates))
        for _ in range(60):
            await asyncio.sleep(chance.expovariate(1 / 15))
            index = chance.randrange(3)
            chosen = candidates[index]
            match chance.choice(("kill", "stop", "refuse", "hang", "lose", "", "")):
                case "kill":
                    await chosen.kill()
                    candidates[index] = another(started)
                    started += 1
                case "stop":
                    chosen.link.fault = ""
                    await chosen.stop()
                    candidates[index] = another(started)
                    started += 1
                case fault:
                    chosen.link.fault = fault
            if watching.done():
                watching.result()
        for candidate in candidates:
            candidate.link.fault = ""
        await asyncio.sleep(max(0.0, quiet_until - now()) + 2 * LEASE + 5 * PAUSE)
        assert [candidate.acts for candidate in candidates].count(True) == 1
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    in_virtual_time(story())


async def _one_at_most(candidates: list[Candidate]) -> None:
    while True:
        leading = [candidate.name for candidate in candidates if candidate.election.leads()]
        assert len(leading) <= 1, leading
        await asyncio.sleep(0.2)
