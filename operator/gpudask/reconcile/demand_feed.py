"""A cluster's ear: one long poll to its scheduler, always open; and what the scheduler was told is wanted."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from gpudask.api.addresses import DASHBOARD_PORT
from gpudask.api.json_object import Json
from gpudask.clients.errors import SchedulerError, SchedulerTrouble
from gpudask.planning.observed.pods import Pod
from gpudask.reconcile.context import Context
from gpudask.reconcile.rate_limiter import RateLimiter
from gpudask.scaling.demand import Demand, is_urgent

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 30.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0
# A scheduler that starts, or is busy with a large graph, is no problem worth a word before this.
_PATIENCE_SECONDS = 20.0
# Within so long who just began to listen has an answer, or knows why there is none.
_FIRST_ANSWER_SECONDS = 2.0
# A scheduler with ever new versions is asked so often, after as many answers that come without a pause. A long answer
# counts for several: reading it costs as much.
_POLLS_A_SECOND, _POLLS_AT_ONCE, _BYTES_OF_A_POLL = 4.0, 12.0, 250_000


class Changed(Protocol):
    """What is called when something new was heard."""

    def __call__(self, *, urgent: bool = True) -> None:
        """Whether it is urgent: more than counts that moved."""


class DemandFeed:
    """The demand of one cluster as last heard. `changed` is called when it may matter.

    `demand` is None while nothing is known: sizes then stay.
    """

    def __init__(self, context: Context, cluster: Json, changed: Changed) -> None:
        self._context = context
        self._uid = cluster["metadata"]["uid"]
        self._key = f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
        self._changed = changed
        self._pod: Pod | None = None
        self._task: asyncio.Task[None] | None = None
        self._silent_since = 0.0
        self._trouble = ""
        self._told = ""
        self._complained = False
        self._is_broken = False
        self._namespace = cluster["metadata"]["namespace"]
        self._polls = RateLimiter(_POLLS_A_SECOND, _POLLS_AT_ONCE)
        self.demand: Demand | None = None
        self.heard_at = 0.0
        self.scheduler_since = 0.0
        self.deaf = False
        self.refused: frozenset[str] = frozenset()
        self.joined: dict[str, float] = {}  # worker's name -> since when it is heard of
        self.first_joined: dict[str, float] = {}  # the same, over restarts of its process in its pod

    def listen_to(self, pod: Pod | None) -> None:
        """Follow this scheduler pod from now on; None: there is none."""
        reachable = pod if pod is not None and pod.ip and pod.running else None
        if _address(self._pod) == _address(reachable):
            if reachable is not None and self._pod is not None and reachable.ready and not self._pod.ready:
                self._silent_since = self._context.clock()  # until now it started
                self._pod = reachable
            return
        self.stop()
        self._pod = reachable
        if reachable is not None:
            self._silent_since = self._context.clock()
            self._task = self._context.supervisor.start(
                partial(self._listen, reachable), kind="demand feed", name=self._key, failed=self._failed
            )

    def forget_workers_but_of(self, pods: Iterable[str]) -> None:
        """Drop what is known of workers whose pods, by their Dask names, are gone."""
        there = frozenset(pods)
        gone = [n for n in self.first_joined if n not in there and n.rpartition("-")[0] not in there]
        for name in gone:
            del self.first_joined[name]

    def stop(self) -> None:
        """Hang up, and know nothing any more."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._pod = None, None
        self._forget()
        self._trouble, self._complained = "", False

    @property
    def problem(self) -> str:
        """Why nothing is known, once that has lasted longer than a start takes."""
        if self.demand is not None or self._pod is None:
            return ""
        silent = self._context.clock() - self._silent_since
        return self._trouble if self.deaf or self._is_broken or silent >= _PATIENCE_SECONDS else ""

    @property
    def first_answer_in(self) -> float:
        """In how many seconds at most the first answer, or the first trouble, is heard; 0: nothing is waited for."""
        if self._pod is None or self.demand is not None or self._trouble:
            return 0.0
        return max(0.0, self._silent_since + _FIRST_ANSWER_SECONDS - self._context.clock())

    async def ask(self) -> None:
        """Hear the demand as it is now: what was said last may be older than a graph that is being taken in."""
        if self._pod is None:
            return
        try:
            demand = await self._poll(self._pod, seen="", wait_seconds=0.0)
            self._next_turn(demand)
            self._take(demand)
        except SchedulerError as error:
            self._lost(error)

    async def tell(self, pools: Json, retiring: list[Json], offers: Json) -> bool:
        """Make what is wanted known, if the scheduler does not know it already; whether it knows now."""
        if self.demand is None or self._pod is None:
            return True
        wanted: Json = {"pools": pools, "retiring": retiring}
        if "offers" in self.demand.features:  # an older preload knows no such word
            wanted["offers"] = offers
        version = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]
        if self._told == version:
            return True
        try:
            refused = await self._context.schedulers.desire(
                _base(self._pod), self._context.token(self._uid), {**wanted, "version": version}
            )
        except SchedulerError as error:
            _LOG.warning("%s: could not tell what is wanted: %s", self._key, error)
            return False
        self._told = version
        self.refused = frozenset(refused)
        for pod, why in refused.items():
            _LOG.info("%s: %s stays: %s", self._key, pod, why)
        if refused:
            self._changed()
        return True

    async def _listen(self, pod: Pod) -> None:
        delay = _FIRST_RETRY_SECONDS
        while True:
            seen = self.demand.version if self.demand else ""
            try:
                demand = await self._poll(pod, seen=seen, wait_seconds=_WAIT_SECONDS)
            except SchedulerError as error:
                self._lost(error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LAST_RETRY_SECONDS)
                continue
            delay = _FIRST_RETRY_SECONDS
            self._take(demand)
            await asyncio.sleep(self._next_turn(demand))

    async def _poll(self, pod: Pod, *, seen: str, wait_seconds: float) -> Demand:
        return await self._context.schedulers.demand(
            _base(pod), self._context.token(self._uid), seen=seen, wait_seconds=wait_seconds, namespace=self._namespace
        )

    def _next_turn(self, demand: Demand) -> float:
        """In how many seconds to ask again, after this answer."""
        now = asyncio.get_running_loop().time()
        return self._polls.take(now, 1 + demand.answer_bytes / _BYTES_OF_A_POLL) - now

    def _failed(self, why: str, seconds: float) -> None:
        """Tell of a defect; sizes stay until the scheduler is heard again."""
        self._forget()
        self._trouble, self._is_broken = f"the operator failed to listen ({why}); tried again in {seconds:g} s", True
        self._changed()

    def _take(self, demand: Demand) -> None:
        now = self._context.clock()
        if self.demand is None or self.demand.scheduler_id != demand.scheduler_id:
            self.scheduler_since = now
        self.joined = {worker.name: self.joined.get(worker.name, now) for worker in demand.workers}
        self.first_joined = self.joined | self.first_joined
        news = self.demand is None or self.demand.version != demand.version
        urgent = self.demand is None or is_urgent(self.demand, demand)
        if demand.desired_version != self._told:
            self._told = demand.desired_version
            news = urgent = True
        self.demand, self.heard_at, self._trouble, self._complained = demand, now, "", False
        self.deaf = self._is_broken = False  # its preload may come up a moment after its HTTP server
        if news:
            self._changed(urgent=urgent)

    def _lost(self, error: SchedulerError) -> None:
        known = self.demand is not None
        if known:
            self._silent_since = self._context.clock()
        if error.trouble == SchedulerTrouble.UNREACHABLE and not known and self._trouble and not self._is_broken:
            if self.problem and not self._complained:
                self._complained = True
                self._changed()
            return  # nothing new
        _LOG.info("%s: %s", self._key, error)
        self._forget()
        self._trouble = str(error)
        self.deaf = error.trouble in (SchedulerTrouble.NO_PRELOAD, SchedulerTrouble.PROTOCOL)
        self._changed()

    def _forget(self) -> None:
        self.demand, self.heard_at, self._told = None, 0.0, ""
        self.deaf = self._is_broken = False
        self.refused = frozenset()


def _base(pod: Pod) -> str:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"http://{host}:{DASHBOARD_PORT}"


def _address(pod: Pod | None) -> tuple[str, str] | None:
    return (pod.uid, pod.ip) if pod is not None else None
