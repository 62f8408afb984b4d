"""The jobs of a seed: what their programs do, what people do to them, and how each has to end. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpudask.api import Json
from tests.api.test_job import a_job
from tests.builders import a_manifest, a_pool

SHARED = "shared"  # the cluster of the jobs that use one
GONE = "gone"
FOR_EVER = -1


@dataclass(frozen=True)
class PlannedJob:
    """A job. `exits`: of its runs, one after another, the last one again and again; `FOR_EVER`: it does not end.

    `ends`: its phase in the end, or `GONE`. `runs`: how often its program has to run; `at_most`: no more often, and
    perhaps not so often. `refused`: so many pods of it a node refuses. `beside`: a container goes on after the program.
    `deed`: what people do once it runs: `suspend` and go on, or `delete`.
    """

    name: str
    spec: Json
    exits: tuple[int, ...] = (0,)
    ends: str = "Complete"
    runs: int = 1
    at_most: bool = False
    refused: int = 0
    beside: bool = False
    deed: str = ""

    @property
    def manifest(self) -> Json:
        """As people apply it."""
        return a_job(**self.spec) | {"metadata": {"name": self.name}}


def planned_jobs(count: int, seed: int) -> list[PlannedJob]:
    """So many jobs, of all kinds in turn, in an order of the seed."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    kinds = [kind for kind, times in _KINDS.items() for _ in range(times)]
    chosen = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(chosen)
    return [_job(f"j{number}", kind) for number, kind in enumerate(chosen)]


def _job(name: str, kind: str) -> PlannedJob:
    own: Json = {"spec": a_manifest(a_pool("gpu", replicas=1, gpu={"count": 1}))["spec"]}
    cluster = {"name": SHARED} if kind.endswith("shared") else own
    given: dict[str, Any] = dict(_MADE[kind])
    spec = {"cluster": cluster, "backoff": "1s"} | given.pop("spec", {})
    return PlannedJob(name, spec, **given)


_MADE: dict[str, Json] = {
    "once": {},
    "once-shared": {},
    "retried": {"spec": {"retries": 2}, "exits": (1, 1, 0), "runs": 3},
    "retried-shared": {"spec": {"retries": 1}, "exits": (1, 0), "runs": 2},
    "fails": {"spec": {"retries": 1}, "exits": (3,), "runs": 2, "ends": "Failed"},
    "fails-at-once": {"spec": {"retries": 3, "failExitCodes": [7]}, "exits": (7,), "ends": "Failed"},
    "deadline": {"spec": {"activeDeadline": "20s"}, "exits": (FOR_EVER,), "ends": "Failed", "at_most": True},
    "held-first": {"spec": {"suspend": True}},
    "preempted": {"exits": (FOR_EVER, 0), "runs": 2, "at_most": True, "deed": "suspend"},
    "deleted": {"exits": (FOR_EVER,), "at_most": True, "deed": "delete", "ends": GONE},
    "passing": {"spec": {"ttlAfterFinished": "1s"}, "ends": GONE},
    "kept": {"spec": {"keepCluster": {"onSuccess": "2s"}}},
    "kept-failed": {"spec": {"keepCluster": {"onFailure": "2s"}}, "exits": (1,), "ends": "Failed"},
    "beside": {"beside": True},
    "refused": {"refused": 2},
}
_KINDS = {kind: {"once": 4, "retried": 2}.get(kind, 1) for kind in _MADE}


def unasked(jobs: list[PlannedJob], runs: dict[str, int]) -> Iterator[str]:
    """The jobs whose program ran more often than asked for."""
    for job in jobs:
        if runs.get(job.name, 0) > job.runs:
            yield f"{job.name} ({job.spec}) ran {runs[job.name]} times, {job.runs} at most were asked for"
