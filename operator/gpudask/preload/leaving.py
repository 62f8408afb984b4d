"""Pods that Kubernetes ends: each tells so from a hook, and waits here until nothing is lost with it.

A pod may speak for itself only: it is believed when it calls from the address of its own worker. Where addresses are
translated on the way, the operator's word begins the drain, and the pod only waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from typing import TYPE_CHECKING, Any

from .desired import Retiring
from .drain import DRAINED

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.scheduler import Scheduler, WorkerState

logger = logging.getLogger("gpudask.preload")

LOOK_SECONDS = 0.05
WORD_SECONDS = 15.0  # for the operator, who may just start anew, to say that the pod leaves

Wishes = tuple[Retiring, ...]


class Leaving:
    """The pods that end. `retire` takes the whole list of wishes; `state` says how far a worker's drain is."""

    def __init__(
        self, scheduler: Scheduler, retire: Callable[[Wishes], dict[str, str]], state: Callable[[WorkerState], str]
    ) -> None:
        self._scheduler = scheduler
        self._retire = retire
        self._state = state
        self._wanted: dict[str, Retiring] = {}  # pod -> the operator's wish, those that it was refused left out
        self._announced: set[str] = set()  # pods that said themselves that they end
        self._waiting: dict[str, list[tuple[float, asyncio.Future[str]]]] = {}  # pod -> (since, answer)
        self._looking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Let everybody go: the scheduler ends."""
        if self._looking is not None:
            self._looking.cancel()
        for pod in list(self._waiting):
            self._let_go(pod, "the scheduler ends")

    def accept(self, wishes: Wishes) -> dict[str, str]:
        """Take the operator's whole list, and keep on draining the pods that end; return pod -> why it stays."""
        self._announced &= self._workers().keys()
        refused = self._retire(self._with_announced({wish.pod: wish for wish in wishes}))
        self._wanted = {wish.pod: wish for wish in wishes if wish.pod not in refused}
        return refused

    async def wait(self, pod: str, caller: str) -> str:
        """Return why the pod may end, once it may. `caller` is the address of whoever asks."""
        workers = self._workers().get(pod, [])
        if pod not in self._announced and any(_is_same_host(ws.host, caller) for ws in workers):
            logger.info("gpudask: the pod of %s ends: it is drained", pod)
            self._announced.add(pod)
            self._retire(self._with_announced(self._wanted))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiter = (time.monotonic(), answer)
        self._waiting.setdefault(pod, []).append(waiter)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            return await answer
        finally:
            with contextlib.suppress(KeyError, ValueError):
                self._waiting[pod].remove(waiter)

    async def _look(self) -> None:
        """Look at all pods that wait, again and again until none does."""
        while self._waiting:
            workers = self._workers()
            for pod, waiters in list(self._waiting.items()):
                if not waiters:
                    del self._waiting[pod]
                    continue
                why = self._why_free(pod, workers.get(pod, []), since=waiters[0][0])
                if why:
                    self._let_go(pod, why)
            await asyncio.sleep(LOOK_SECONDS)

    def _why_free(self, pod: str, workers: list[WorkerState], *, since: float) -> str:
        if not workers:
            return "no worker of it is known"
        if all(self._state(ws) == DRAINED for ws in workers):
            return "it is drained"
        wish = self._wanted.get(pod)
        if wish is not None and wish.forced:
            return "the operator waits no longer"
        if wish is None and pod not in self._announced and time.monotonic() - since > WORD_SECONDS:
            return "it is not retiring"
        return ""

    def _let_go(self, pod: str, why: str) -> None:
        for _, answer in self._waiting.pop(pod, ()):
            if not answer.done():
                answer.set_result(why)

    def _with_announced(self, wishes: dict[str, Retiring]) -> Wishes:
        """Add the pods that end. Busy or not, nobody can call one back."""
        ending = {
            pod: Retiring(pod=pod, data=wishes[pod].data if pod in wishes else "move", if_idle=False)
            for pod in self._announced
        }
        return tuple({**wishes, **ending}.values())

    def _workers(self) -> dict[str, list[WorkerState]]:
        """Return pod -> its workers, under every name that a pod of the worker could have."""
        found: dict[str, list[WorkerState]] = {}
        for ws in self._scheduler.workers.values():
            name: Any = str(ws.name)
            found.setdefault(name, []).append(ws)
            pod, _, process = name.rpartition("-")
            if process.isdigit():
                found.setdefault(pod, []).append(ws)
        return found


def _is_same_host(host: str, caller: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) == ipaddress.ip_address(caller)
    return False
