"""Random histories of a job: lost answers, refusals, kills between any two writes, late caches, two operators at once.

Whatever the order, no attempt runs twice, there are no more attempts than asked for, and nothing is left at the end.
A failing seed is printed by pytest: run it alone with `-k`.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from gpudask.api.job import Job, JobStatus
from gpudask.jobs.actions import (
    Action,
    CreateCluster,
    CreateRunner,
    DeleteCluster,
    DeleteRunner,
    EmptyCluster,
    EndContainers,
    GiveWay,
    LiftGate,
)
from gpudask.jobs.observation import JobObservation, SeenCluster
from gpudask.jobs.plan import plan
from gpudask.jobs.runner_pods import RunnerPod
from tests.jobs.builders import NOW, exited, job, own_cluster, pod, seen, status

SEEDS = range(40)
_MOVES, _CALM_PASSES = 150, 400


@functools.cache
def _job(retries: int, suspend: bool) -> Job:
    return job(retries=retries, backoff="1s", suspend=suspend)


class _FaultError(Exception):
    """A request without an answer; it may have been done."""


class _ConflictError(Exception):
    """The object is not as the request assumed."""


@dataclass
class _World:
    """The API server, the kubelet and the people."""

    random: random.Random
    retries: int
    now: float = NOW
    calm: bool = False
    suspend: bool = False
    status: JobStatus = field(default_factory=status)
    version: int = 1
    pods: dict[str, RunnerPod] = field(default_factory=dict)  # by name
    cluster: SeenCluster | None = None
    clusters_made: int = 0
    pods_made: int = 0
    ran: Counter[str] = field(default_factory=Counter)  # by name: pods that ran under it
    uids_that_ran: list[str] = field(default_factory=list)
    spared: int = 0  # runs that suspension, and no failure, ended

    @property
    def job(self) -> Job:
        return _job(self.retries, self.suspend)

    def request(self, do: object) -> None:
        """Do it, unless it fails before; its answer may be lost."""
        fault = self.random.random() if not self.calm else 1.0
        if fault < 0.1:
            raise _FaultError
        assert callable(do)
        do()
        if fault < 0.2:
            raise _FaultError

    def kubelet(self) -> None:
        """One pod that has no gate starts, or ends."""
        for name, item in list(self.pods.items()):
            if item.deleting:
                del self.pods[name]
            elif not item.gated and not item.running and not item.ended:
                self.ran[name] += 1
                self.uids_that_ran.append(item.uid)
                self.pods[name] = replace(item, node="n", running=True)
            elif item.running and self.random.random() < 0.5:
                code = self.random.choice((0, 1, 1, 1))
                self.pods[name] = replace(exited(code), uid=item.uid, name=name, owner=item.owner)

    def people(self) -> None:
        """Somebody deletes a pod or the cluster, loses a node, or suspends the job."""
        move = self.random.randrange(5)
        if move == 0 and self.pods:
            del self.pods[self.random.choice(list(self.pods))]
        elif move == 1:
            self.cluster = None
        elif move == 2 and not self.status.has_ended:
            self.suspend = not self.suspend
            self.spared += self.suspend
            self.version += 1


class _Operator:
    """One operator: caches that may be late, and the executor's order of things."""

    def __init__(self, world: _World) -> None:
        self.world = world
        self.pods: dict[str, RunnerPod] = {}
        self.cluster: SeenCluster | None = None
        self.refresh()
        self.watch()

    def watch(self) -> None:
        """The caches catch up."""
        self.pods, self.cluster = dict(self.world.pods), self.world.cluster

    def refresh(self) -> None:
        """The job is read anew."""
        self.status, self.version, self.job = self.world.status, self.world.version, self.world.job

    def look(self) -> JobObservation:
        """Of a pod that an open attempt misses the API server is asked, as the operator does."""
        uid = self.status.runner.uid
        if uid and uid not in {item.uid for item in self.pods.values()}:
            found = [item for item in self.world.pods.values() if item.uid == uid]
            self.pods |= {item.name: item for item in found}
        cluster = self.cluster
        gives_way_in = None
        if not self.world.calm and self.world.random.random() < 0.2:  # a quota refuses the scheduler
            gives_way_in = self.world.random.choice((0.0, 9.0))
            cluster = cluster and replace(cluster, scheduler_ready=False, lacks_room=True)
        known = seen(self.job, *self.pods.values(), at=self.world.now, cluster=cluster, status=self.status)
        return replace(known, gives_way_in=gives_way_in)

    def step(self) -> None:
        """A pass, which ends where a request fails."""
        planned = plan(self.look())
        try:
            for action in planned.actions:
                self.world.request(lambda action=action: self.do(action))
            if planned.status != self.status:
                self.world.request(lambda: self.write(planned.status))
        except _FaultError:
            return
        except _ConflictError:
            self.refresh()
            self.watch()

    def write(self, new: JobStatus) -> None:
        if self.version != self.world.version:
            raise _ConflictError
        self.world.status, self.world.version = new, self.world.version + 1
        self.status, self.version = new, self.world.version

    def do(self, action: Action) -> None:  # noqa: C901, PLR0912 - one branch for each action
        world = self.world
        match action:
            case CreateCluster(attempt):
                if world.cluster is None:
                    world.clusters_made += 1
                    made = own_cluster(self.job, attempt=attempt)
                    world.cluster = replace(made, uid=f"cluster-{world.clusters_made}")
                self.cluster = world.cluster
            case DeleteCluster(cluster) | EmptyCluster(cluster):
                if world.cluster is not None and world.cluster.uid == cluster.uid:
                    world.cluster = None
                self.cluster = world.cluster
            case CreateRunner(attempt):
                name = f"sums-runner-{attempt}"
                if name not in world.pods:
                    world.pods_made += 1
                    world.pods[name] = pod(attempt, uid=f"pod-{world.pods_made}", gated=True)
                self.pods[name] = world.pods[name]
            case LiftGate(item):
                there = world.pods.get(item.name)
                if there is not None and there.uid == item.uid:
                    world.pods[item.name] = self.pods[item.name] = replace(there, gated=False)
            case DeleteRunner(item) | GiveWay(item):
                there = world.pods.get(item.name)
                if there is None or there.uid != item.uid:
                    self.pods.pop(item.name, None)
                elif there.node:
                    world.pods[item.name] = self.pods[item.name] = replace(there, deleting=True)
                else:
                    del world.pods[item.name]
                    self.pods.pop(item.name, None)
            case EndContainers(item):
                raise AssertionError(f"{item.name} has one container")
            case _:
                raise AssertionError(action)


def _check(world: _World) -> None:
    twice = {name: runs for name, runs in world.ran.items() if runs > 1}
    assert not twice, f"attempts that ran twice: {twice}"
    most = world.retries + 1 + world.spared
    assert len(world.uids_that_ran) <= most, f"{world.uids_that_ran} ran, {most} at most were asked for"


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_runs_twice_and_nothing_is_left(seed: int):
    chance = random.Random(seed)  # noqa: S311
    world = _World(chance, retries=chance.randrange(3))
    operators = [_Operator(world), _Operator(world)]
    for _ in range(_MOVES):
        world.now += chance.random()
        number = chance.randrange(2) if chance.random() < 0.2 else 0
        match chance.randrange(8):
            case 0:
                operators[number] = _Operator(world)
            case 1 | 2:
                operators[number].watch()
            case 3:
                world.kubelet()
            case 4:
                operators[number].refresh()
            case 5 if chance.random() < 0.3:
                world.people()
            case _:
                operators[number].step()
        _check(world)
    world.calm, world.suspend, world.version = True, False, world.version + 1
    for _ in range(_CALM_PASSES):
        world.now += 100.0
        world.kubelet()
        operators[0].refresh()
        operators[0].watch()
        operators[0].step()
        _check(world)
    assert world.status.has_ended, world.status
    assert world.cluster is None
    assert [item.name for item in world.pods.values() if not item.ended] == []
    assert world.status.failures <= world.retries + 1
