"""Long-poll client for one scheduler's demand, and the last desired state that the scheduler was sent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterable
from enum import Enum, auto
from functools import partial
from typing import Protocol

from gpudask.api import Json
from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.clients.flow_control import RateLimiter
from gpudask.metrics.clusters import Feed
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.scaling.demand import Demand, is_urgent

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 30.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0
# A scheduler that starts, or is busy with a large graph, is reported as a problem after this.
_DEADLINE_SECONDS = 20.0
# Within so long a new feed has an answer, or knows why there is none.
_FIRST_ANSWER_SECONDS = 2.0
# A scheduler with ever new versions is polled so often, after a burst of answers without a pause. A long answer counts
# for several: reading it costs as much.
_POLLS_PER_SECOND, _POLLS_BURST, _BYTES_PER_POLL = 4.0, 12.0, 250_000
_EARLY_SECONDS = 1.0  # by so much a poll's time may be over sooner by the clock of the scheduler's machine


class _Answer(Enum):
    """What an answer of a scheduler says."""

    KNOWN = auto()  # the version is known: nothing has changed while the poll waited
    COUNTS = auto()  # nothing urgent has changed
    URGENT = auto()


class OnChange(Protocol):
    """The callback for a new demand, or a new problem."""

    def __call__(self, *, urgent: bool = True) -> None:
        """Schedule a pass. `urgent`: more than counts of tasks changed."""


class DemandFeed:
    """The demand of one cluster, as its scheduler last answered. `on_change` is called when a pass may be needed.

    `demand` is None while nothing is known: sizes then stay. `demand_at`: when it came. `scheduler_since`: since when
    this scheduler process answers. `unavailable`: the scheduler runs without a preload of this protocol. `refused`: the
    pods, by Dask name, whose retirement it refused.
    """

    def __init__(self, context: Context, cluster: Json, on_change: OnChange) -> None:
        self._context = context
        self._uid = cluster["metadata"]["uid"]
        self._key = f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
        self._on_change = on_change
        self._pod: Pod | None = None
        self._task: asyncio.Task[None] | None = None
        self._unanswered_since = 0.0
        self._reason = ""
        self._sent_version = ""
        self._is_logged = False
        self._is_broken = False
        self._namespace = cluster["metadata"]["namespace"]
        self._limiter = RateLimiter(_POLLS_PER_SECOND, _POLLS_BURST)
        self._quiet_until = 0.0  # by the event loop's clock
        self.demand: Demand | None = None
        self.demand_at = 0.0
        self.scheduler_since = 0.0
        self.unavailable = False
        self.refused: frozenset[str] = frozenset()
        self.joined: dict[str, float] = {}  # worker's name -> since when the scheduler lists it
        self.first_joined: dict[str, float] = {}  # the same, over restarts of its process in its pod

    def follow(self, pod: Pod | None) -> None:
        """Poll this scheduler pod from now on; None: there is none."""
        reachable = pod if pod is not None and pod.ip and pod.running else None
        if _address(self._pod) == _address(reachable):
            if reachable is not None and self._pod is not None and reachable.ready and not self._pod.ready:
                self._unanswered_since = self._context.clock()  # until now it started
                self._pod = reachable
            return
        self.stop()
        self._pod = reachable
        if reachable is not None:
            self._unanswered_since = self._context.clock()
            self._task = self._context.supervisor.start(
                partial(self._poll_forever, reachable), kind="demand feed", name=self._key, on_failure=self._task_failed
            )

    def keep_workers_of(self, pods: Iterable[str]) -> None:
        """Forget the workers of all pods but these, by their Dask names: the others are gone."""
        there = frozenset(pods)
        gone = [n for n in self.first_joined if n not in there and n.rpartition("-")[0] not in there]
        for name in gone:
            del self.first_joined[name]

    def stop(self) -> None:
        """Stop polling, and forget the demand."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._pod = None, None
        self._quiet_until = 0.0
        self._forget()
        self._reason, self._is_logged = "", False

    @property
    def problem(self) -> str:
        """Why the demand is unknown, once that has lasted longer than a start takes."""
        if self.demand is not None or self._pod is None:
            return ""
        unanswered = self._context.clock() - self._unanswered_since
        return self._reason if self.unavailable or self._is_broken or unanswered >= _DEADLINE_SECONDS else ""

    @property
    def first_answer_in(self) -> float:
        """In how many seconds at most the first answer or failure comes; 0: none is waited for."""
        if self._pod is None or self.demand is not None or self._reason:
            return 0.0
        return max(0.0, self._unanswered_since + _FIRST_ANSWER_SECONDS - self._context.clock())

    def state(self) -> Feed | None:
        """What the metrics say of the scheduler's answers; None: no scheduler runs."""
        if self._pod is None:
            return None
        since = self._unanswered_since if self.demand is None else self.demand_at
        return Feed(self.demand is not None, max(0.0, self._context.clock() - since))

    async def poll_now(self) -> None:
        """Get the demand as it is now: the last answer may be older than a graph that the scheduler just received."""
        if self._pod is None:
            return
        try:
            demand = await self._poll(self._pod, known_version="", wait_seconds=0.0)
            self._reserve_poll(demand, asyncio.get_running_loop().time())
            self._update(demand)
        except SchedulerError as error:
            self._poll_failed(error)

    async def send_desired(self, pools: Json, retiring: list[Json], offers: Json, *, task_stream: bool = False) -> bool:
        """Send the desired state, if the scheduler does not have it already; whether it has it now."""
        if self.demand is None or self._pod is None:
            return True
        wanted: Json = {"pools": pools, "retiring": retiring}
        if "offers" in self.demand.features:  # an older preload knows no such field
            wanted["offers"] = offers
        if task_stream and "report" in self.demand.features:
            wanted["task_stream"] = True
        version = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]
        if self._sent_version == version:
            return True
        try:
            refused = await self._context.schedulers.desire(
                base_url(self._pod), self._context.token(self._uid), {**wanted, "version": version}
            )
        except SchedulerError as error:
            _LOG.warning("%s: the desired state could not be sent: %s", self._key, error)
            return False
        self._sent_version = version
        self.refused = frozenset(refused)
        for pod, why in refused.items():
            _LOG.info("%s: %s stays: %s", self._key, pod, why)
        if refused:
            self._on_change()
        return True

    async def _poll_forever(self, pod: Pod) -> None:
        delay = _FIRST_RETRY_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            known_version = self.demand.version if self.demand else ""
            asked = loop.time()
            quiet_seconds = min(max(0.0, self._quiet_until - asked), _WAIT_SECONDS)
            try:
                demand = await self._poll(
                    pod, known_version=known_version, wait_seconds=_WAIT_SECONDS, quiet_seconds=quiet_seconds
                )
            except SchedulerError as error:
                self._poll_failed(error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LAST_RETRY_SECONDS)
                continue
            delay = _FIRST_RETRY_SECONDS
            kind = self._update(demand)
            now = loop.time()
            await asyncio.sleep(self._next_poll_at(demand, kind, asked, now) - now)

    async def _poll(self, pod: Pod, *, known_version: str, wait_seconds: float, quiet_seconds: float = 0.0) -> Demand:
        return await self._context.schedulers.demand(
            base_url(pod),
            self._context.token(self._uid),
            known_version=known_version,
            wait_seconds=wait_seconds,
            quiet_seconds=quiet_seconds,
            namespace=self._namespace,
        )

    def _reserve_poll(self, demand: Demand, now: float) -> float:
        """Reserve a poll of this cluster's after this answer; when it may be made."""
        return self._limiter.reserve(now, 1 + demand.answer_bytes / _BYTES_PER_POLL)

    def _next_poll_at(self, demand: Demand, kind: _Answer, asked: float, now: float) -> float:
        """When to poll again after this answer, fairly among all clusters, and until when those polls are quiet ones.

        A scheduler is polled at once: by a quiet poll, where its counts were just read. It waits for its share of all
        answers where it has many of them: urgent ones, or counts before their turn, as an older preload or a hostile
        scheduler gives.
        """
        at = self._reserve_poll(demand, now)
        if kind is _Answer.COUNTS and now >= self._quiet_until - _EARLY_SECONDS:
            self._quiet_until = self._context.counts_limiter.reserve(self._namespace, now)
            return at
        if kind is _Answer.KNOWN and now >= asked + _WAIT_SECONDS - _EARLY_SECONDS:
            return at
        return max(at, self._context.answers_limiter.reserve(self._namespace, now))

    def _task_failed(self, why: str, seconds: float) -> None:
        """Report a defect of ours; sizes stay until the next answer."""
        self._forget()
        self._reason, self._is_broken = f"the operator failed to listen ({why}); tried again in {seconds:g} s", True
        self._on_change()

    def _update(self, demand: Demand) -> _Answer:
        """Take this answer."""
        now = self._context.clock()
        if self.demand is None or self.demand.scheduler_id != demand.scheduler_id:
            self.scheduler_since = now
        self.joined = {worker.name: self.joined.get(worker.name, now) for worker in demand.workers}
        self.first_joined = self.joined | self.first_joined
        is_new = self.demand is None or self.demand.version != demand.version
        urgent = self.demand is None or is_urgent(self.demand, demand)
        if demand.desired_version != self._sent_version:
            self._sent_version = demand.desired_version
            is_new = urgent = True
        self.demand, self.demand_at, self._reason, self._is_logged = demand, now, "", False
        self.unavailable = self._is_broken = False  # its preload may come up a moment after its HTTP server
        if not is_new:
            return _Answer.KNOWN
        self._on_change(urgent=urgent)
        return _Answer.URGENT if urgent else _Answer.COUNTS

    def _poll_failed(self, error: SchedulerError) -> None:
        known = self.demand is not None
        if known:
            self._unanswered_since = self._context.clock()
        if error.trouble == SchedulerTrouble.UNREACHABLE and not known and self._reason and not self._is_broken:
            if self.problem and not self._is_logged:
                self._is_logged = True
                self._on_change()
            return  # it is known
        _LOG.info("%s: %s", self._key, error)
        self._forget()
        self._reason = str(error)
        self.unavailable = error.trouble in (SchedulerTrouble.NO_PRELOAD, SchedulerTrouble.PROTOCOL)
        self._on_change()

    def _forget(self) -> None:
        self.demand, self.demand_at, self._sent_version = None, 0.0, ""
        self.unavailable = self._is_broken = False
        self.refused = frozenset()


def base_url(pod: Pod) -> str:
    """The URL of a scheduler's HTTP server."""
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"http://{host}:{DASHBOARD_PORT}"


def _address(pod: Pod | None) -> tuple[str, str] | None:
    return (pod.uid, pod.ip) if pod is not None else None
