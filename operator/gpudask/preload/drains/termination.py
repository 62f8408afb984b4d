"""Termination of pods by Kubernetes: each posts it from its preStop hook, and waits until nothing is lost with it.

A pod may speak for itself only: it is believed when it calls from the address of its own worker. Where addresses are
translated on the way, the operator's request begins the drain, and the pod only waits for it. Pods in their node's
network share its address: there whatever runs in that network can drain the worker. Only administrators can start such
things, who could as well end it, and nothing is lost by a drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..desired import RetireRequest
from ..part import Part
from ..pools import pods_of
from .drain import DRAINED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distributed.scheduler import Scheduler, WorkerState

    from ..desired import Desired

logger = logging.getLogger("gpudask.preload")

CHECK_SECONDS = 0.05
CHECK_SHARE = 0.01  # of the event loop's time may go into checks of pods that wait
LISTED_SECONDS = 15.0  # for the operator, who may just start anew, to list the pod as retiring

Requests = tuple[RetireRequest, ...]


class Termination(Part):
    """Pods that Kubernetes terminates. `retire` gets the whole list of requests; `state` returns a drain's state."""

    depends_on = MappingProxyType({"retire": "without retire nobody drains them"})

    def __init__(
        self, scheduler: Scheduler, retire: Callable[[Requests], dict[str, str]], state: Callable[[WorkerState], str]
    ) -> None:
        self._scheduler = scheduler
        self._retire = retire
        self._state = state
        self._listed: dict[str, RetireRequest] = {}  # pod -> the operator's request, unless it was refused
        self._terminating: dict[str, set[str]] = {}  # pod that posted it -> its workers' addresses then
        self._waiting: dict[str, list[tuple[float, asyncio.Future[str]]]] = {}  # pod -> (since, answer)
        self._checking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Answer all pods that wait: the scheduler ends."""
        if self._checking is not None:
            self._checking.cancel()
        for pod in list(self._waiting):
            self._answer(pod, "the scheduler ends")

    def apply(self, desired: Desired) -> dict[str, str]:
        """Retire the operator's pods, and keep on draining the pods that end; return pod -> why it stays."""
        requests = desired.retiring
        refused = self._retire(self._with_terminating({request.pod: request for request in requests}))
        self._listed = {request.pod: request for request in requests if request.pod not in refused}
        return refused

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        for addresses in self._terminating.values():
            addresses.discard(address)
        self._forget_terminated()

    async def wait(self, pod: str, caller: str) -> str:
        """Return why the pod may end, once it may. `caller` is the address of whoever waits."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiter = (time.monotonic(), answer)
        self._waiting.setdefault(pod, []).append(waiter)
        workers = self._workers([pod])[pod]
        if pod not in self._terminating and any(_is_same_host(ws.host, caller) for ws in workers):
            logger.info("gpudask: the pod of %s ends: it is drained", pod)
            self._terminating[pod] = {ws.address for ws in workers}
            self._retire(self._with_terminating(self._listed))
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self._check())
        try:
            return await answer
        finally:
            with contextlib.suppress(KeyError, ValueError):
                self._waiting[pod].remove(waiter)
            if not self._waiting.get(pod):
                self._waiting.pop(pod, None)
            self._forget_terminated()

    async def _check(self) -> None:
        """Check all pods that wait, again and again until none does."""
        while self._waiting:
            started = time.perf_counter()
            for pod, workers in self._workers(self._waiting).items():
                reason = self._why_may_end(pod, workers, since=self._waiting[pod][0][0])
                if reason:
                    self._answer(pod, reason)
            await asyncio.sleep(max(CHECK_SECONDS, (time.perf_counter() - started) / CHECK_SHARE))

    def _why_may_end(self, pod: str, workers: list[WorkerState], *, since: float) -> str:
        if not workers:
            return "no worker of it is known"
        if all(self._state(ws) == DRAINED for ws in workers):
            return "it is drained"
        request = self._listed.get(pod)
        if request is not None and request.forced:
            return "the operator waits no longer"
        if request is None and pod not in self._terminating and time.monotonic() - since > LISTED_SECONDS:
            return "it is not retiring"
        return ""

    def _answer(self, pod: str, reason: str) -> None:
        for _, answer in self._waiting.pop(pod, ()):
            if not answer.done():
                answer.set_result(reason)

    def _forget_terminated(self) -> None:
        """Forget the pods that are gone: no worker is left of those that were there, and no hook waits.

        What comes under such a name is a container that started anew, after a failed probe for instance.
        """
        gone = [pod for pod, addresses in self._terminating.items() if not addresses and pod not in self._waiting]
        for pod in gone:
            del self._terminating[pod]
        if gone:
            self._retire(self._with_terminating(self._listed))

    def _with_terminating(self, requests: dict[str, RetireRequest]) -> Requests:
        """Add the pods that terminate. Busy or not, nobody can call one back."""
        terminating = {
            pod: RetireRequest(pod=pod, data=requests[pod].data if pod in requests else "move", if_idle=False)
            for pod in self._terminating
        }
        return tuple({**requests, **terminating}.values())

    def _workers(self, pods: Iterable[str]) -> dict[str, list[WorkerState]]:
        """Return pod -> its workers, for these pods."""
        found: dict[str, list[WorkerState]] = {pod: [] for pod in pods}
        for ws in self._scheduler.workers.values():
            for pod in pods_of(ws.name):
                if pod in found:
                    found[pod].append(ws)
        return found


def _is_same_host(host: str, caller: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) == ipaddress.ip_address(caller)
    return False
