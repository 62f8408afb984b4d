"""A worker is made when it can find the scheduler, where its protocol does not look for it again and again."""

from __future__ import annotations

import pytest

from gpudask.planning.actions import CreateWorker
from gpudask.planning.plan import plan
from tests.builders import a_pool
from tests.planning.builders import cluster, demand, scheduler_pod, seen


def creates(protocol: str, *, running: bool) -> int:
    of = cluster(a_pool(replicas=2), protocol=protocol)
    planned = plan(seen(of, scheduler_pod(of, running=running), says=demand() if running else None))
    return sum(isinstance(action, CreateWorker) for action in planned.actions)


@pytest.mark.parametrize(("protocol", "at_once"), [("tcp", 2), ("tls", 2), ("ucxx", 0)])
def test_workers_start_beside_the_scheduler_but_those_of_ucx_after_it(protocol: str, at_once: int):
    assert creates(protocol, running=False) == at_once
    assert creates(protocol, running=True) == 2


@pytest.mark.parametrize(("holds", "made"), [(0, 0), (5, 1)], ids=["the scheduler goes now", "it stays a while"])
def test_workers_of_ucx_are_not_made_in_the_pass_that_ends_the_scheduler(holds: int, made: int):
    of = cluster(a_pool(replicas=1), protocol="ucxx")
    old = scheduler_pod(of, spec_hash="old")
    planned = plan(seen(of, old, says=demand(tasks=holds)))
    assert sum(isinstance(action, CreateWorker) for action in planned.actions) == made


def test_without_any_scheduler_workers_of_ucx_wait_too():
    of = cluster(a_pool(replicas=2), protocol="ucxx")
    assert not any(isinstance(action, CreateWorker) for action in plan(seen(of)).actions)
