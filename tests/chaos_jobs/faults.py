"""Faults between the operator and the API server, of each kind of write for jobs: each once, then at random."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from tests.chaos_jobs.course import Course
from tests.reconcile.proxy import Proxy, hung_up, refusal

BEFORE = ("429", "500", "cut before", "killed before")
AFTER = ("cut after", "killed after")
_WRITES = (
    ("runner create", "POST", r"/pods$", rb'"[a-z0-9]+-runner-\d+"'),
    ("gate removal", "PATCH", r"/pods/[a-z0-9]+-runner-\d+$", rb"schedulingGates"),
    ("containers end", "PATCH", r"/pods/[a-z0-9]+-runner-\d+$", rb"activeDeadlineSeconds"),
    ("runner delete", "DELETE", r"/pods/[a-z0-9]+-runner-\d+$", rb""),
    ("worker delete", "DELETE", r"/pods/j\d+-.*-worker-\d+$", rb""),
    ("status patch", "PATCH", r"/gpudaskjobs/[a-z0-9]+/status$", rb""),
    ("ttl deletion", "DELETE", r"/gpudaskjobs/[a-z0-9]+$", rb""),
    ("cluster create", "POST", r"/gpudaskclusters$", rb""),
    ("cluster delete", "DELETE", r"/gpudaskclusters/j\d+$", rb""),
    ("cluster emptied", "PATCH", r"/gpudaskclusters/j\d+$", rb""),
)
KINDS = tuple(kind for kind, *_ in _WRITES)


def kind_of(method: str, path: str, body: bytes) -> str:
    """The kind of a write for jobs; empty: it is none."""
    for kind, wanted, pattern, within in _WRITES:
        if method == wanted and re.search(pattern, path) and re.search(within, body):
            return kind
    return ""


def job_of(path: str, body: bytes) -> str:
    """The job that a write is for; empty: none is named."""
    found = re.search(r"/(j\d+)\b", path) or re.search(r'"name": ?"(j\d+)\b', body.decode(errors="replace"))
    return found[1] if found is not None else ""


class FaultyProxy(Proxy):
    """`kill`: end the operator in the middle of what it does, and start it again; it returns once it is dead.

    `faults`: how many there were, by kind of write and fault. `share`: of writes with a fault, once each pair was had.
    """

    def __init__(
        self, kubeconfig: Path, seed: int, share: float, kill: Callable[[], Awaitable[bool]], course: Course
    ) -> None:
        super().__init__(kubeconfig)
        self._course = course
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._share = share
        self._kill = kill
        self._due = {kind: self._random.sample([*BEFORE, *AFTER], len(BEFORE) + len(AFTER)) for kind in KINDS}
        self._after: dict[int, tuple[str, str]] = {}
        self.had: Counter[tuple[str, str]] = Counter()
        self.calm = False

    @property
    def missed(self) -> list[str]:
        """What faults of what writes there were none of."""
        return [f"{kind}: {fault}" for kind in KINDS for fault in (*BEFORE, *AFTER) if not self.had[kind, fault]]

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        kind = kind_of(request.method, request.path, body) if "dryRun" not in request.query else ""
        fault = self._fault(kind) if kind else ""
        if kind and (job := job_of(request.path, body)):
            self._course.note(job, f"sent: {kind}: {fault or 'no fault'}")
        if fault in AFTER:
            self._after[id(request)] = (kind, fault)
        elif fault == "killed before":
            if await self._kill():
                self.had[kind, fault] += 1
                return hung_up(request)
            self._due[kind].insert(0, fault)
        elif fault:
            self.had[kind, fault] += 1
            if fault == "cut before":
                return hung_up(request)
            return refusal(int(fault), {"429": "TooManyRequests", "500": "InternalError"}[fault])
        try:
            return await super()._pass(request)
        except ConnectionError:  # the operator was killed
            return hung_up(request)
        finally:
            self._after.pop(id(request), None)

    def _fault(self, kind: str) -> str:
        if self.calm or self._random.random() >= max(self._share, 0.5 if self._due[kind] else 0.0):
            return ""
        if self._due[kind]:
            return self._due[kind].pop()
        return self._random.choice(("429", "500", "cut before", "cut after"))

    async def _keeps_answer(self, request: web.Request) -> bool:
        kind, fault = self._after.pop(id(request), ("", ""))
        if fault == "killed after" and not await self._kill():
            self._due[kind].insert(0, fault)
            return False
        if fault:
            self.had[kind, fault] += 1
        return bool(fault)
