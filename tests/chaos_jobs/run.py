"""A run: jobs are submitted some at a time, faults happen, and what is found in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, JOB_PLURAL, LABEL_CLUSTER, LABEL_JOB, LABEL_POOL, PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from local.clusters.api_server import ApiServer
from local.operator.process import OperatorProcess
from tests.builders import a_manifest, a_pool
from tests.chaos_jobs.course import Course, percentile_99
from tests.chaos_jobs.faults import FaultyProxy
from tests.chaos_jobs.jobs import GONE, SHARED, PlannedJob, planned_jobs, unasked
from tests.chaos_jobs.node import Node
from tests.chaos_jobs.observer import Observer
from tests.conftest import CRD, JOB_CRD, RECORD_CRD
from tests.eventually import eventually_async as eventually
from tests.hostile.platform import controllers
from tests.kubectl import Kubectl

NAMESPACE = "jobs"
_HOME = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}"
_MERGE = "application/merge-patch+json"
_POLL_SECONDS = 0.5
_SLOWEST = 5  # releases that are told with their course


@dataclass(frozen=True)
class Settings:
    """`at_once`: jobs that have not ended. `share`: of writes with a fault. `kills`: of the operator, at most.

    `seconds`: until a job is stuck.
    """

    jobs: int
    seed: int
    at_once: int = 40
    share: float = 0.05
    kills: int = 60
    seconds: float = 300.0


@dataclass
class Result:
    """What was found. `findings`: a line for each, with its reason.

    `release_seconds`: from the end of a program until the workers of its own cluster were gone. `led_seconds`: of them,
    those in which an operator led: until the next one leads nobody can give anything back.
    """

    done: int = 0
    stuck: int = 0
    twice: int = 0
    left: int = 0
    release_seconds: list[float] = field(default_factory=list)
    led_seconds: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """The last line."""
        counts = f"done={self.done} stuck={self.stuck} twice={self.twice} left={self.left}"
        whole, led = percentile_99(self.release_seconds), percentile_99(self.led_seconds)
        return f"jobs: {counts} gpu_release_p99={whole:.1f}s released_after_leader_p99={led:.1f}s"


class _Operator:
    """The operator's process, which is started again wherever it is killed."""

    def __init__(self, log: Path, most: int, course: Course) -> None:
        self._log = log
        self._most = most
        self._course = course
        self._process: OperatorProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self.kubeconfig = Path()
        self.kills = 0

    async def start(self) -> None:
        """Start it, and wait until it leads."""
        settings = {
            "GPUDASK_NAMESPACE": NAMESPACE,
            "GPUDASK_WATCH_NAMESPACES": NAMESPACE,
            "GPUDASK_IDENTITY": "operator",
        }
        self._process = await OperatorProcess.start(self.kubeconfig, self._log, settings)
        await self._process.until_healthy("200 it leads")

    async def kill(self) -> bool:
        """Kill it in the middle of whatever it does; False where it just starts, or was killed often enough."""
        process = self._process
        if process is None or self.kills >= self._most or (self._starting is not None and not self._starting.done()):
            return False
        self._process = None
        killed_at = time.time()
        await process.kill()
        self.kills += 1
        self._starting = asyncio.create_task(self._start_again(killed_at))
        return True

    async def _start_again(self, killed_at: float) -> None:
        await self.start()
        self._course.without_leader.append((killed_at, time.time()))

    async def end(self) -> None:
        """End it."""
        if self._starting is not None:
            self._starting.cancel()
        if self._process is not None:
            await self._process.end()


async def run(settings: Settings, scratch: Path, tell: Callable[[str], None]) -> Result:
    """The jobs of a seed, on an API server of their own; the operator's log is left in `scratch`."""
    jobs = planned_jobs(settings.jobs, settings.seed)
    course = Course()
    async with _platform(settings, jobs, scratch, course) as (api, observer, proxy, operator):
        run_ = _Run(api, settings, jobs, tell)
        await run_.all_jobs()
        proxy.calm = True
        result = await run_.judged(observer)
        course.read_log((scratch / "operator.log").read_text().splitlines())
        result.led_seconds = [course.seconds_led(release) for release in observer.releases]
        slowest = sorted(observer.releases, key=course.seconds_led, reverse=True)[:_SLOWEST]
        for line in [line for release in slowest for line in course.told(release)]:
            tell(line)
        tell(f"{operator.kills} kills of the operator; faults that no write had: {', '.join(proxy.missed) or 'none'}")
        for (kind, fault), count in sorted(proxy.had.items()):
            tell(f"  {kind}: {fault}: {count}")
        return result


@contextlib.asynccontextmanager
async def _platform(
    settings: Settings, jobs: list[PlannedJob], scratch: Path, course: Course
) -> AsyncIterator[tuple[Kubernetes, Observer, FaultyProxy, _Operator]]:
    server = await asyncio.to_thread(ApiServer.start, f"chaos-jobs-{os.getpid()}")
    try:
        kubectl = Kubectl(str(server.kubectl), server.kubeconfig, namespace="")
        kubectl.define(CRD, JOB_CRD, RECORD_CRD)
        server.processes.ensure(controllers(server))
        kubectl("create", "namespace", NAMESPACE)
        api = await Kubernetes.connect(str(server.kubeconfig))
        node = Node(api, NAMESPACE, {job.name: job for job in jobs}, settings.seed)
        observer, operator = (
            Observer(api, NAMESPACE, course),
            _Operator(scratch / "operator.log", settings.kills, course),
        )
        proxy = FaultyProxy(server.kubeconfig, settings.seed, settings.share, operator.kill, course)
        await proxy.start()
        operator.kubeconfig = proxy.kubeconfig(scratch / "kubeconfig")
        node.start()
        observing = [asyncio.create_task(observer.run()), asyncio.create_task(course.watch_machine())]
        try:
            await operator.start()
            yield api, observer, proxy, operator
        finally:
            await operator.end()
            for task in observing:
                task.cancel()
            await node.stop()
            await proxy.stop()
            await api.close()
    finally:
        server.processes.stop(["kube-controller-manager"], patience_seconds=0.5)
        server.stop()


class _Run:
    """People: they submit jobs, change their minds, and look at what came of it."""

    def __init__(
        self, api: Kubernetes, settings: Settings, jobs: list[PlannedJob], tell: Callable[[str], None]
    ) -> None:
        self._api = api
        self._settings = settings
        self._jobs = {job.name: job for job in jobs}
        self._tell = tell
        self._open: dict[str, float] = {}  # and since when
        self._did: set[str] = set()
        self._said: dict[str, Json] = {}
        self._stuck: list[str] = []

    async def all_jobs(self) -> None:
        """Submit all jobs, so many at once, until each has ended or is stuck."""
        shared = a_manifest(a_pool(replicas=1), name=SHARED)
        await self._api.request("POST", f"{_HOME}/{PLURAL}", body=shared)
        waiting = list(self._jobs.values())
        told = 0
        while waiting or self._open:
            while waiting and len(self._open) < self._settings.at_once:
                job = waiting.pop(0)
                await self._api.request("POST", f"{_HOME}/{JOB_PLURAL}", body=job.manifest)
                self._open[job.name] = time.monotonic()
            await self._look()
            await asyncio.sleep(_POLL_SECONDS)
            ended = len(self._jobs) - len(waiting) - len(self._open)
            if ended // 100 > told // 100:
                self._tell(f"{ended} jobs have ended")
            told = ended

    async def _look(self) -> None:
        items = (await self._api.request("GET", f"{_HOME}/{JOB_PLURAL}"))["items"]
        there = {item["metadata"]["name"]: item.get("status", {}) for item in items}
        self._said |= there
        for name, since in list(self._open.items()):
            job, status = self._jobs[name], there.get(name)
            if status is None or (job.ends != GONE and status.get("phase") in ("Complete", "Failed")):
                del self._open[name]
            elif time.monotonic() - since > self._settings.seconds:
                del self._open[name]
                self._stuck.append(f"{name} ({job.spec}) is stuck: {status}")
            else:
                await self._deed(job, status.get("phase"))

    async def _deed(self, job: PlannedJob, phase: str | None) -> None:
        path, name = f"{_HOME}/{JOB_PLURAL}/{job.name}", job.name
        with contextlib.suppress(ApiError):  # it ends just now
            if phase == "Suspended":
                await self._api.request("PATCH", path, body={"spec": {"suspend": False}}, content_type=_MERGE)
            elif phase == "Running" and job.deed and name not in self._did:
                self._did.add(name)
                if job.deed == "delete":
                    await self._api.request("DELETE", path)
                else:
                    await self._api.request("PATCH", path, body={"spec": {"suspend": True}}, content_type=_MERGE)

    async def judged(self, observer: Observer) -> Result:
        """What is found, once nothing is left, or half a minute has done nothing about it."""
        left: list[str] = []
        with contextlib.suppress(AssertionError):
            await eventually(self._left, lambda found: not found, "nothing is left", seconds=60)
        left = await self._left()
        twice = [*unasked(list(self._jobs.values()), observer.runs)]
        twice += [f"{name} ran twice" for name in observer.shared_names]
        wrong = [text for job in self._jobs.values() if (text := self._wrong(job, observer.runs.get(job.name, 0)))]
        findings = [*self._stuck, *twice, *(f"{name} is left" for name in left), *wrong]
        done = len(self._jobs) - len({text.split(" ", 1)[0] for text in [*self._stuck, *wrong]})
        return Result(
            done, len(self._stuck), len(twice), len(left), [each.seconds for each in observer.releases], [], findings
        )

    def _wrong(self, job: PlannedJob, runs: int) -> str:
        status = self._said.get(job.name, {})
        if job.ends not in (GONE, status.get("phase")):
            return f"{job.name} ({job.spec}) ended as {status}, and not as {job.ends}"
        if runs < job.runs and not job.at_most:
            return f"{job.name} ({job.spec}) ran {runs} times, and not {job.runs}"
        return ""

    async def _left(self) -> list[str]:
        clusters = (await self._api.request("GET", f"{_HOME}/{PLURAL}"))["items"]
        pods = (await self._api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
        found = [f"cluster {item['metadata']['name']}" for item in clusters if item["metadata"]["name"] != SHARED]
        for pod in pods:
            labels, phase = pod["metadata"].get("labels", {}), pod.get("status", {}).get("phase")
            ended = phase in ("Succeeded", "Failed")
            is_shared = labels.get(LABEL_CLUSTER) == SHARED and LABEL_JOB not in labels
            if not ended and not is_shared:
                kind = "worker" if LABEL_POOL in labels else "pod"
                found.append(f"{kind} {pod['metadata']['name']}")
        return found
