"""Pods that Kubernetes ends: each tells so from a hook, and waits here until nothing is lost with it.

A pod may speak for itself only: it is believed when it calls from the address of its own worker. Where addresses are
translated on the way, the operator's word begins the drain, and the pod only waits for it. Pods in their node's network
share its address: there whatever runs in that network can drain the worker. Only administrators can start such things,
who could as well end it, and nothing is lost by a drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from typing import TYPE_CHECKING

from .desired import Retiring
from .drain import DRAINED
from .names import pods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distributed.scheduler import Scheduler, WorkerState

logger = logging.getLogger("gpudask.preload")

LOOK_SECONDS = 0.05
LOOK_SHARE = 0.01  # of the event loop's time may go into looks at pods that wait
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
        self._announced: dict[str, set[str]] = {}  # pod that said itself that it ends -> its workers' addresses then
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
        refused = self._retire(self._with_announced({wish.pod: wish for wish in wishes}))
        self._wanted = {wish.pod: wish for wish in wishes if wish.pod not in refused}
        return refused

    def remove_worker(self, address: str) -> None:
        """Forget a worker that has gone."""
        for addresses in self._announced.values():
            addresses.discard(address)
        self._forget_ended()

    async def wait(self, pod: str, caller: str) -> str:
        """Return why the pod may end, once it may. `caller` is the address of whoever asks."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiter = (time.monotonic(), answer)
        self._waiting.setdefault(pod, []).append(waiter)
        workers = self._workers([pod])[pod]
        if pod not in self._announced and any(_is_same_host(ws.host, caller) for ws in workers):
            logger.info("gpudask: the pod of %s ends: it is drained", pod)
            self._announced[pod] = {ws.address for ws in workers}
            self._retire(self._with_announced(self._wanted))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            return await answer
        finally:
            with contextlib.suppress(KeyError, ValueError):
                self._waiting[pod].remove(waiter)
            if not self._waiting.get(pod):
                self._waiting.pop(pod, None)
            self._forget_ended()

    async def _look(self) -> None:
        """Look at all pods that wait, again and again until none does."""
        while self._waiting:
            started = time.perf_counter()
            for pod, workers in self._workers(self._waiting).items():
                why = self._why_free(pod, workers, since=self._waiting[pod][0][0])
                if why:
                    self._let_go(pod, why)
            await asyncio.sleep(max(LOOK_SECONDS, (time.perf_counter() - started) / LOOK_SHARE))

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

    def _forget_ended(self) -> None:
        """Forget the pods that are gone: no worker is left of those that were there, and no hook waits.

        What comes under such a name is a container that started anew, after a failed probe for instance.
        """
        ended = [pod for pod, addresses in self._announced.items() if not addresses and pod not in self._waiting]
        for pod in ended:
            del self._announced[pod]
        if ended:
            self._retire(self._with_announced(self._wanted))

    def _with_announced(self, wishes: dict[str, Retiring]) -> Wishes:
        """Add the pods that end. Busy or not, nobody can call one back."""
        ending = {
            pod: Retiring(pod=pod, data=wishes[pod].data if pod in wishes else "move", if_idle=False)
            for pod in self._announced
        }
        return tuple({**wishes, **ending}.values())

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
