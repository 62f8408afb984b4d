"""Histories of a cron job, drawn by hypothesis: kills between two writes, lost answers, late caches, two operators.

Whatever the order, no time runs twice, and once it is calm the newest time has run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.api.cron_job import CronJobStatus
from gpudask.jobs.cron.observation import Action, CreateJob, CronJobObservation, DeleteJob, SeenJob, job_name
from gpudask.jobs.cron.plan import plan
from tests.jobs.cron.builders import NOON, cron_job, status

pytestmark = pytest.mark.simulation

_POLICIES = ("Allow", "Forbid", "Replace")
_CRON_JOBS = {policy: cron_job("* * * * *", concurrencyPolicy=policy) for policy in _POLICIES}
_MOVES = ("step", "step", "watch", "refresh", "restart", "run", "end", "delete", "minute", "lose answer", "refuse")


class _FaultError(Exception):
    """A request without an answer, or a refusal."""


class _ConflictError(Exception):
    """The status was written by somebody else."""


@dataclass
class _World:
    """The API server, the jobs' own loops, and the people."""

    policy: str
    now: float = NOON
    status: CronJobStatus = field(default_factory=status)
    version: int = 1
    jobs: dict[str, SeenJob] = field(default_factory=dict)  # by name
    made: int = 0
    ran: Counter[str] = field(default_factory=Counter)
    fault: str = ""  # of the next request: it is refused, or its answer is lost

    def request(self, do: object) -> None:
        fault, self.fault = self.fault, ""
        if fault == "refuse":
            raise _FaultError
        assert callable(do)
        do()
        if fault == "lose answer":
            raise _FaultError

    def run(self) -> None:
        """The loops of jobs begin those that the status has, by their uid."""
        for name, item in self.jobs.items():
            if not item.begun and self.status.is_active(item.uid):
                self.ran[name] += 1
                self.jobs[name] = replace(item, begun=True, version=f"{item.version}+")

    def end(self) -> None:
        for name, item in self.jobs.items():
            if item.begun and item.ended_at is None:
                self.jobs[name] = replace(item, ended_at=self.now, succeeded=True, version=f"{item.version}+")
                return


class _Operator:
    """One operator, with caches that may be late."""

    def __init__(self, world: _World) -> None:
        self.world = world
        self.refresh()
        self.watch()

    def refresh(self) -> None:
        self.status, self.version = self.world.status, self.world.version

    def watch(self) -> None:
        self.jobs = dict(self.world.jobs)

    def step(self) -> None:
        """A pass, which ends where a request fails."""
        for item in self.status.active:  # of those that it misses the API server is asked
            there = self.world.jobs.get(item.name)
            if there is not None and there.uid == item.uid and item.name not in self.jobs:
                self.jobs[item.name] = there
        known = tuple(sorted(self.jobs.values(), key=lambda job: job.name))
        planned = plan(CronJobObservation(_CRON_JOBS[self.world.policy], self.status, known, self.world.now))
        try:
            for action in planned.actions:
                self.world.request(lambda action=action: self.do(action))
            if planned.status != self.status:
                self.world.request(lambda: self.write(planned.status))
        except _FaultError:
            return
        except _ConflictError:
            self.refresh()

    def write(self, new: CronJobStatus) -> None:
        if self.version != self.world.version:
            raise _ConflictError
        self.world.status, self.world.version = new, self.world.version + 1
        self.refresh()

    def do(self, action: Action) -> None:
        world = self.world
        match action:
            case CreateJob(time):
                name = job_name("nightly", time)
                if name not in world.jobs:
                    world.made += 1
                    world.jobs[name] = SeenJob(name, f"uid-{world.made}", "1", time)
                self.jobs[name] = world.jobs[name]
            case DeleteJob(item):
                there = world.jobs.get(item.name)
                self.jobs.pop(item.name, None)
                if there is None:
                    return
                if (there.uid, there.version) == (item.uid, item.version):
                    del world.jobs[item.name]
                else:
                    self.jobs[item.name] = there


def _check(world: _World) -> None:
    twice = {name: runs for name, runs in world.ran.items() if runs > 1}
    assert not twice, f"times that ran twice: {twice}"
    if world.policy == "Forbid":
        going = [item.name for item in world.jobs.values() if item.begun and item.ended_at is None]
        assert len(going) <= 1, f"side by side, though that is forbidden: {going}"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(_POLICIES), st.lists(st.tuples(st.sampled_from(_MOVES), st.integers(0, 1)), max_size=80))
def test_no_time_runs_twice_and_the_newest_is_not_lost(policy: str, moves: list[tuple[str, int]]):  # noqa: C901
    world = _World(policy)
    operators = [_Operator(world), _Operator(world)]
    for move, number in moves:
        match move:
            case "step":
                operators[number].step()
            case "watch":
                operators[number].watch()
            case "refresh":
                operators[number].refresh()
            case "restart":
                operators[number] = _Operator(world)
            case "run":
                world.run()
            case "end":
                world.end()
            case "delete" if world.jobs:
                del world.jobs[min(world.jobs)]
            case "minute":
                world.now += 60.0
            case fault:
                world.fault = fault
        _check(world)
    world.fault, world.now = "", world.now + 60.0
    newest = job_name("nightly", world.now)
    for _ in range(20):
        operators[0].refresh()
        operators[0].watch()
        operators[0].step()
        world.run()
        world.end()
        _check(world)
    assert world.ran[newest] == 1, f"{newest} did not run: {world.status}"
    assert not [item.name for item in world.jobs.values() if item.ended_at is None]
