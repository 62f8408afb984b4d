"""The registry of jobs finds them by name, whatever comes and goes, and does not walk through all of them for one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.clients.reflector import Caches
from gpudask.reconcile.jobs.registry import JobCopy, JobRegistry, observe_job
from gpudask.reconcile.loop import Registry

_MANY = 20_000
_SECONDS = 3.0  # of CPU; walking through all of them for each takes some ten times as long


class _Copies(Caches):
    """Jobs without an API server."""

    def __init__(self) -> None:
        super().__init__([])
        self.known: dict[str, JobCopy] = {}

    def owned(self, owner: str) -> tuple[Any, ...]:
        return (self.known[owner],) if owner in self.known else ()


class _Jobs:
    """A registry that does not lead, and what it told."""

    def __init__(self) -> None:
        self.registry, self.copies, self.told = JobRegistry(Registry()), _Copies(), list[str]()
        self.registry.jobs = self.copies
        self.registry.on_job = self.told.append

    def come(self, name: str, uid: str) -> None:
        copy = observe_job(a_body(name, uid))
        self.copies.known[copy.owner] = copy
        self.registry.job_changed(copy.owner)

    def go(self, uid: str) -> None:
        self.copies.known.pop(f"lab/{uid}", None)
        self.registry.job_changed(f"lab/{uid}")


def a_body(name: str, uid: str) -> Json:
    """A job as the API server has it."""
    return {"metadata": {"name": name, "namespace": "lab", "uid": uid, "resourceVersion": "1"}}


@pytest.fixture
def jobs() -> _Jobs:
    """A registry without jobs."""
    return _Jobs()


def test_a_job_is_found_by_its_name_until_it_is_gone(jobs: _Jobs):
    jobs.come("sums", "a")
    assert jobs.registry.find("lab/sums") == a_body("sums", "a")
    jobs.go("a")
    assert jobs.registry.find("lab/sums") is None
    assert jobs.told == ["lab/sums", "lab/sums"]


def test_the_end_of_an_old_job_hides_no_new_one_of_its_name(jobs: _Jobs):
    jobs.come("sums", "a")
    jobs.come("sums", "b")
    jobs.go("a")
    assert jobs.registry.find("lab/sums") == a_body("sums", "b")


def test_what_was_never_known_may_be_gone(jobs: _Jobs):
    jobs.go("a")
    assert jobs.told == []


def test_one_of_many_that_goes_costs_no_walk_through_all_of_them(jobs: _Jobs):
    for number in range(_MANY):
        jobs.come(f"sums-{number}", str(number))
    began = time.process_time()
    for number in reversed(range(_MANY)):
        jobs.go(str(number))
    assert time.process_time() - began < _SECONDS
    assert jobs.registry.find("lab/sums-0") is None
