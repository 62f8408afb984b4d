"""An operator's process: its clock, its watches, its part in the election, and the registry with the cluster's loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.clients.clock import Clock
from gpudask.clients.errors import ApiError
from gpudask.planning.observed.clocks import Clocks
from gpudask.reconcile.loop import Registry
from tests.takeovers.api_server import ApiServer
from tests.takeovers.cluster_loop import ClusterLoop, Surroundings, a_context
from tests.takeovers.timeline import Timeline
from tests.takeovers.watches import ClusterWatch, PodWatch

_OFF_SECONDS = 0.05  # by which an operator's clock is off the API server's
_ESTIMATE_OFF_SECONDS = 0.02  # by which it is wrong about that
_STARTED_WITHIN_SECONDS = 1000.0  # of the machine, whose clock the registry has
_START_SECONDS = (0.5, 2.0)
# The election: how long a renewal lasts, how often it is tried and how often that succeeds, and how long a standby sees
# none until it leads.
_LEASE_SECONDS, _RENEW_SECONDS, _RENEWED, _TAKE_SECONDS = 6.0, 1.0, 0.9, 9.0
_GIVEN_UP_SECONDS = 3.0  # after which a request without an answer fails; in an outage one does in each step


class Operator:
    """An operator that is ended and begun anew. What it knows is its process's, and lost with it.

    `frozen_until`: it does nothing until then. `leads`: whether it believes so.
    """

    def __init__(self, name: str, timeline: Timeline, server: ApiServer) -> None:
        self.name = name
        self._timeline = timeline
        self._server = server
        self.begin()

    def begin(self) -> None:
        """Start its process, where none runs."""
        chance, now = self._timeline.chance, self._timeline.now
        off = chance.uniform(-_OFF_SECONDS, _OFF_SECONDS) + self._timeline.server_set
        started = chance.uniform(0, _STARTED_WITHIN_SECONDS)
        self._ready_at = now + chance.uniform(*_START_SECONDS)
        self.is_alive, self.leads, self._is_synced = True, False, False
        self.frozen_until = self._blocked_until = 0.0
        self._leads_until = -1.0
        self._observed: tuple[str, float] | None = None  # the lease as last seen, and when that came:
        self._observed_at = now
        clock = lambda: self._timeline.wall + off  # noqa: E731 - its type is known
        clocks = lambda: Clocks(self._timeline.server_set + _ESTIMATE_OFF_SECONDS - off, -off)  # noqa: E731 - as `clock`
        self.registry = Registry(lambda: self._timeline.now + started)
        self._answers = Clock(clock, clock)
        self.pods = PodWatch(self._timeline, self._server, clock, clocks, self._answers.unanswered_at)
        self.pods.on_gone, self.pods.on_change = self.registry.pod_gone, self._wake
        self.cluster = ClusterWatch(self._timeline, self._server, self.registry.cluster_changed)
        self._loop: ClusterLoop | None = None
        watch = self.pods
        self._supervisor = _Supervisor()
        surroundings = Surroundings(
            self.name,
            self._timeline,
            self.pods.pods,
            lambda: watch.known_at,
            self._answers.unanswered_at,
            self._begun,
        )
        self._context = a_context(surroundings, _Connection(self, self._server), self._supervisor, clock, clocks)

    def kill(self) -> None:
        """End its process at once."""
        self.is_alive = self.leads = False
        self._loop = None

    def revive(self) -> None:
        """Start its process again, where none runs."""
        if not self.is_alive:
            self.begin()

    def stand_by(self, *, release: bool = False) -> None:
        """End the loops, as an operator that leads no more. `release`: it gives the lease back."""
        self._timeline.note(f"{self.name} leads no more")
        self.leads, self._loop = False, None
        self.registry._leads = False
        self._supervisor.end_loops()
        if release and self._server.lease.holder == self.name:
            self._server.lease.holder = ""

    @property
    def may_write(self) -> bool:
        """Whether its lease holds."""
        return self.leads and self._timeline.now < self._leads_until

    def block(self, until: float) -> None:
        """Have it wait for an answer until then; its watches go on."""
        self._blocked_until = until

    def step(self) -> None:
        """Do what is due."""
        now = self._timeline.now
        if not self.is_alive or now < self.frozen_until or now < self._ready_at:
            return
        if self._server.answers:
            self._answers.response_received(None, self._answers.request_sent())
            self.pods.read()
            self.cluster.read()
        elif self._server.outages and now - self._ready_at >= _GIVEN_UP_SECONDS:
            self._answers.response_missed(self._answers.request_sent() - _GIVEN_UP_SECONDS)
        self._is_synced = self._is_synced or (self.pods.is_synced and self.cluster.is_synced)
        if not self._is_synced:
            return
        self._elect()
        if self._loop is not None and self.may_write and now >= self._blocked_until:
            self._loop.step()

    def _elect(self) -> None:
        if self._server.answers:
            self._look_at_lease()
        if self.leads and self._timeline.now >= self._leads_until:
            self.stand_by()

    def _look_at_lease(self) -> None:
        now, lease = self._timeline.now, self._server.lease
        if self._observed != (lease.holder, lease.renewed):
            self._observed, self._observed_at = (lease.holder, lease.renewed), now
        is_ours = lease.holder == self.name
        if self.leads:
            is_due = now - lease.renewed >= _RENEW_SECONDS and is_ours
            if is_due and self._timeline.chance.random() < _RENEWED:
                self._renew()
            if not is_ours:
                self._leads_until = -1.0
        elif is_ours or not lease.holder or now - self._observed_at > _TAKE_SECONDS:
            self._renew()
            self.leads = True
            self._timeline.note(f"{self.name} leads")
            self.registry.lead(self._context)

    def _renew(self) -> None:
        lease, now = self._server.lease, self._timeline.now
        lease.holder, lease.renewed = self.name, now
        self._leads_until = now + _LEASE_SECONDS

    def _begun(self, loop: ClusterLoop) -> None:
        self._loop = loop

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()


@dataclass(frozen=True)
class _Connection:
    """An operator's client of the API server, which writes nothing while another one may lead."""

    operator: Operator
    server: ApiServer

    async def write_status(self, _namespace: str, _name: str, *, uid: str, version: str, status: Json) -> Json:  # noqa: ARG002
        """As the real one's."""
        if not self.operator.may_write:
            raise ApiError(0, "", "it leads no more", "PATCH")
        return self.server.write_status(self.operator.name, version, status, self.operator.block)

    async def get_cluster(self, _namespace: str, _name: str) -> Json:
        """As the real one's."""
        return self.server.get_cluster()


class _Task:
    """What the registry knows of a task. `is_over`: what was to be done is done; else it is cancelled once it ends."""

    def __init__(self, *, is_over: bool) -> None:
        self._is_over = is_over
        self._callbacks: list[Callable[[_Task], object]] = []

    def add_done_callback(self, callback: Callable[[_Task], object]) -> None:
        """As asyncio's; at once where it is over."""
        if self._is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def end(self) -> None:
        """Call what waits for its end."""
        for callback in self._callbacks:
            callback(self)

    def cancelled(self) -> bool:
        """As asyncio's."""
        return not self._is_over


class _Supervisor:
    """Starts no tasks: loops make their passes in virtual time, and records have nothing to do."""

    def __init__(self) -> None:
        self._loops: list[_Task] = []

    def start(self, _run: object, *, kind: str, **_options: object) -> _Task:
        """As the real one's."""
        task = _Task(is_over=kind == "record")
        if kind == "cluster":
            self._loops.append(task)
        return task

    def end_loops(self) -> None:
        """The loops were cancelled, and have ended."""
        ending, self._loops = self._loops, []
        for task in ending:
            task.end()
