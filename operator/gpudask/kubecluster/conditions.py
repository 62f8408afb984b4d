"""The conditions of a cluster's status while a program runs: followed by one watch, and told to who waits, once each.

Dask waits without a word: a task that no pool serves, or whose pod finds no node, is waited for as one that computes.
The operator knows why within a second, and writes it into the status. A warning of the logger `gpudask` says it, the
widget and `repr` show it as long as it lasts, and what a program raises has it as a note. Dask has no hook for a
`result(timeout=)` that ends without one.

An idle program costs the API server a watch every few minutes. Nothing here starts a credential plugin, which may open
a browser: with credentials that have ended it is asked again, seldom, until somebody's own request has renewed them.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from typing import Any

from distributed.client import Client
from distributed.deploy.cluster import Cluster

from gpudask.api import Json
from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.resource import PLURAL
from gpudask.api.untrusted_text import quote
from gpudask.kubecluster import overrides
from gpudask.kubecluster.errors import IMAGE_STEP, OPERATOR_STEP, KubeClusterError, not_observed, where_to_look
from gpudask.kubecluster.kube.request import FORBIDDEN, NOT_FOUND, UNAUTHORIZED
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Purpose, requests_for
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.scheduler.connection import SchedulerConnection
from gpudask.kubecluster.scheduler.outage import Reconnector
from gpudask.kubecluster.timing import Timing, end_task

logger = logging.getLogger(__name__)

_MESSAGE_LENGTH = 600
_SILENT = str(Reason.SCHEDULER_UNREACHABLE)
_OPERATOR, _LIMITS = "OperatorSilent", "LimitsTooLow"
# The status of a condition that is bad news.
_BAD = {ConditionType.ACCEPTED: "False", ConditionType.DEMAND_SERVABLE: "False", ConditionType.DEGRADED: "True"}
_SUSPENDED = (Reason.SUSPENDED, Reason.SUSPENDING)
_COUNTED = re.compile(r"\b\d+ tasks? (?:wants? )?")
_POOL = re.compile(r"(?:removed )?pool [a-z0-9]+|scheduler")
# What a program, or whoever runs it, can do; the messages of other reasons name the cure themselves.
_STEPS: dict[str, str] = {
    Reason.IMAGE: IMAGE_STEP,
    Reason.QUOTA: "Have the quota raised (kubectl describe quota -n {namespace}), or give pods back: scale(), or close"
    " other clusters",
    Reason.UNSCHEDULABLE: "Ask for less (resources=, gpu.count), or have a node added that fits: gpudask doctor shows"
    " what nodes offer",
    Reason.CRASHING: "Read what it wrote: gpudask logs {name} -n {namespace}, or get_logs()",
    Reason.UNREGISTERED: "Read what it wrote: gpudask logs {name} -n {namespace}, or get_logs()",
    Reason.SUSPENDED: "Resume it: resume(), or gpudask resume {name} -n {namespace}",
    Reason.SUSPENDING: "Resume it: resume(), or gpudask resume {name} -n {namespace}",
    Reason.INVALID: "Correct what is named: kubectl edit gdc {name} -n {namespace}",
    Reason.TEMPLATE_REFUSED: "Correct what is named in the template: kubectl edit gdc {name} -n {namespace}",
    Reason.LIMIT: "Ask for less, or have the administrators of the operator raise limits",
    Reason.FORBIDDEN: "Change what is refused, or ask whoever set the policy",
    Reason.FROZEN: "Sizes follow again once the scheduler answers; until then: scale()",
    Reason.PRELOAD_FAILED: "Sizes do not follow demand meanwhile: set them by scale()",
    _SILENT: "Read what it wrote: gpudask logs {name} -n {namespace}; it is stopped, or busy with one long call",
    _OPERATOR: OPERATOR_STEP,
    Reason.UNSERVABLE: "",
    Reason.DRAIN_BLOCKED: "",
}


@dataclass(frozen=True)
class Trouble:
    """What keeps a cluster from its work.

    Attributes:
        reason: the operator's, in one stable word, or this module's own.
        message: as whoever said it put it.
        next_step: what to do; empty where the message says it.
    """

    reason: str
    message: str
    next_step: str

    @property
    def key(self) -> tuple[str, str]:
        """What is told once: without counts and times, which move."""
        if self.reason == Reason.UNSERVABLE:
            return self.reason, _COUNTED.sub("", self.message)
        subject = _POOL.match(self.message)
        return self.reason, subject.group() if subject else ""

    def __str__(self) -> str:
        """The sentence, with its cure."""
        said = self.message if self.message.endswith("?") else self.message.rstrip(".") + "."
        return f"{said} {self.next_step}".strip()


def troubles(body: Json) -> list[Trouble]:
    """What the operator reports of a cluster, the most pressing first; nothing where all is well."""
    if not body:
        return []
    if away := not_observed(body):
        return [_trouble(body, _OPERATOR, away)]
    found = {item["type"]: item for item in body["status"].get("conditions") or []}
    said = [found[kind] for kind, bad in _BAD.items() if found.get(kind, {}).get("status") == bad]
    ready = found.get(ConditionType.READY, {})
    if ready.get("status") == "False" and ready.get("reason") in _SUSPENDED:
        said.insert(0, ready)
    return [_trouble(body, item["reason"], item.get("message") or item["reason"]) for item in said]


def too_few_allowed(body: Json, pool: str | None, n_workers: int) -> Trouble | None:
    """The trouble of a wait for more workers than the sizes of `pool`, or of all pools, allow; None: they do."""
    if not body:
        return None
    sections = [section for section in body["spec"]["pools"] if pool in (None, section["name"])]
    limits = [(section["name"], *_most(body, section)) for section in sections]
    most = sum(workers for _, workers, _ in limits)
    if not limits or most >= n_workers:
        return None
    why = ", ".join(f"pool {name} {how}" for name, _, how in limits)
    which = pool or sections[0]["name"]
    return Trouble(
        _LIMITS,
        f"there can be {most} workers at most, and {n_workers} are waited for: {why}",
        f"Raise that, with scale() or adapt(): scale({n_workers}, pool={which!r}), or wait for {most}",
    )


def _trouble(body: Json, reason: str, message: str) -> Trouble:
    step = _STEPS.get(reason)
    metadata = body["metadata"]
    names = {"name": metadata["name"], "namespace": metadata.get("namespace", "")}
    next_step = where_to_look(body) if step is None else step.format(**names)
    return Trouble(reason, quote(str(message), _MESSAGE_LENGTH), next_step)


def _most(body: Json, section: Json) -> tuple[int, str]:
    """The most workers that a pool can have, and what says so."""
    entry = overrides.entry_of(body, section["name"]) or {}
    gpu = section.get("gpu")
    each = int(gpu.get("count", 1)) if gpu is not None and gpu.get("launcher") != "dask" else 1
    if entry.get("replicas") is not None:
        by = f" by {quote(str(entry['by']), 60)}" if entry.get("by") else ""
        return entry["replicas"] * each, f"is set to {entry['replicas']} pods{by}"
    limits = section.get("autoscale") or {}
    most = entry.get("max") or limits.get("max")
    if most is not None:
        return most * each, f"may have {most} pods"
    return section.get("replicas", 1) * each, f"has {section.get('replicas', 1)} pods"


class Conditions:
    """The follower of one cluster's conditions.

    Args:
        resource: the cluster.
        connection: to its scheduler, which is asked whether it answers.
        reconnector: which knows whether the scheduler is away, and tells of it.
        cluster: whose clients are looked at; known by its identity alone.
        timing: intervals and deadlines.

    Attributes:
        present: what is wrong now, and has been for some seconds.
    """

    def __init__(
        self,
        resource: Resource,
        connection: SchedulerConnection,
        reconnector: Reconnector,
        *,
        cluster: Cluster,
        timing: Timing,
    ) -> None:
        self.present: list[Trouble] = []
        self._resource, self._connection, self._reconnector = resource, connection, reconnector
        self._cluster, self._timing = cluster, timing
        self._tasks: list[asyncio.Task[None]] = []
        self._waits: dict[object, tuple[str | None, int]] = {}  # for how many workers, of which pool
        self._since: dict[tuple[str, str], float] = {}  # since when each trouble lasts
        self._told: dict[tuple[str, str], float] = {}  # when each was last seen, of those that were told
        self._silent: Trouble | None = None

    def start(self) -> None:
        """Follow from now on, in the present loop."""
        with requests_for(Purpose.POLLING):
            self._tasks = [asyncio.create_task(work) for work in (self._follow(), self._tell(), self._ask_again())]

    async def end(self) -> None:
        """Follow no more; the connection of the watch is closed then."""
        self.present = []
        await end_task(*self._tasks)

    @contextlib.contextmanager
    def waiting(self, n_workers: int, pool: str | None) -> Iterator[None]:
        """Know of a wait for so many workers, while the block lasts."""
        wait = object()
        self._waits[wait] = (pool, n_workers)
        try:
            yield
        finally:
            del self._waits[wait]

    def add_to(self, error: BaseException | None) -> None:
        """Add what is wrong now, as notes, to an error that leaves the program's block: of a result that timed out."""
        if isinstance(error, TimeoutError):
            for trouble in self.present:
                error.add_note(self._line(trouble))

    def __str__(self) -> str:
        """The most pressing, for `repr`; empty where all is well."""
        first = next(iter(self.present), "")  # asked for in the program's thread, while it may change
        return quote(str(first), _MESSAGE_LENGTH)

    def as_html(self) -> str:
        """Rows for Dask's table of a cluster."""
        rows = [
            f"<tr><td><strong>{escape(each.reason)}</strong>: {escape(str(each))}</td></tr>" for each in self.present
        ]
        return "".join(rows)

    # ------------------------------------------------------------------ what is wrong

    def _line(self, trouble: Trouble) -> str:
        return f"cluster {self._resource.name!r}: {trouble}"

    async def _tell(self) -> None:
        while True:
            await self._timing.clock.sleep(self._timing.conditions_tick_seconds)
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a body in no known shape; the next may have one
                logger.debug("the conditions of cluster %s cannot be read: %r", self._resource.name, error)

    def _look(self) -> None:
        """Take over what is wrong now, and warn of what has lasted for some seconds and was not told yet."""
        now = self._timing.clock.monotonic()
        found = {each.key: each for each in self._found()}
        self._since = {key: self._since.get(key, now) for key in found}
        # What was asked for in vain was asked for long enough.
        lasting = [
            each
            for key, each in found.items()
            if each is self._silent or now - self._since[key] >= self._timing.conditions_warn_seconds
        ]
        self._told = {
            key: now if key in found else seen
            for key, seen in self._told.items()
            if key in found or now - seen < self._timing.conditions_again_seconds
        }
        self.present = lasting
        for each in lasting:
            if each.key not in self._told:
                self._told[each.key] = now
                logger.warning("gpudask: %s", self._line(each))

    def _found(self) -> list[Trouble]:
        if self._reconnector.outage is not None:
            return []  # the outage is told, with its cause
        body = self._resource.body
        # As in `Workers`: a size that the operator has not seen is none yet.
        waits = [] if not body or not_observed(body) else list(self._waits.values())
        limited = [too_few_allowed(body, pool, n_workers) for pool, n_workers in waits]
        reported = self._reported(body)
        # A program that suspends its cluster knows; one that waits for a result does not.
        is_told = not any(each.reason in _SUSPENDED for each in reported) or self._is_waited_for()
        found = [each for each in reported if is_told or each.reason not in _SUSPENDED]
        return [each for each in (*limited, *found, self._silent) if each is not None]

    @staticmethod
    def _reported(body: Json) -> list[Trouble]:
        """What the operator reports; nothing where the status has no known shape, as one that somebody else wrote."""
        try:
            return troubles(body)
        except (KeyError, TypeError, AttributeError, ValueError):
            return []

    def _is_waited_for(self) -> bool:
        """True if the program waits: for workers, or for a result."""
        return bool(self._waits) or any(
            state.status == "pending" for client in self._clients() for state in list(client.futures.values())
        )

    def _clients(self) -> list[Any]:
        clients = list(Client._instances)  # noqa: SLF001 - Dask keeps no list of a cluster's clients
        return [client for client in clients if client.cluster is self._cluster]

    async def _ask_again(self) -> None:
        """Ask the scheduler for an answer while the program waits: one that is stopped keeps its connections open."""
        timing = self._timing
        while True:
            await timing.clock.sleep(timing.conditions_ask_seconds)
            if self._reconnector.outage is not None or not self._is_waited_for():
                self._silent = None
                continue
            try:
                async with asyncio.timeout(timing.conditions_warn_seconds):
                    await self._connection.rpc.echo(data=None)
            except TimeoutError:
                message = f"the scheduler has not answered for {timing.conditions_warn_seconds:g} s"
                self._silent = self._silent or _trouble(self._body(), _SILENT, message)
            except Exception as error:  # noqa: BLE001 - lost, as the reconnector tells; or any answer of its user's code
                logger.debug("the scheduler of cluster %s: %r", self._resource.name, error)
                self._silent = None
            else:
                self._silent = None

    def _body(self) -> Json:
        return self._resource.body or {"metadata": {"name": self._resource.name, "namespace": self._resource.namespace}}

    # ------------------------------------------------------------------ the watch

    async def _follow(self) -> None:
        """Keep the cluster as last read up to date, until it is gone or nothing may be read."""
        server, failures, is_stale = self._resource.server, 0, False
        if server is None or not self._resource.body:
            return
        timing = self._timing
        while True:
            began = timing.clock.monotonic()
            try:
                if is_stale:
                    await self._read(server)
                is_stale = True
                async for body in self._changes(server):
                    self._take_over(body)
                    failures = 0
            except KubeClusterError as error:
                if error.status == NOT_FOUND:
                    return
                if error.status == FORBIDDEN:
                    await self._poll(server)
                    return
                failures = max(failures, self._least_failures(error)) + 1
                logger.debug("the watch of cluster %s is lost: %s", self._resource.name, error)
            except (ValueError, KeyError, AttributeError, TypeError) as error:  # what came is no change of a cluster
                failures += 1
                logger.debug("the watch of cluster %s is lost: %s", self._resource.name, error)
            else:
                lasted = timing.clock.monotonic() - began
                failures = 0 if lasted >= timing.conditions_most_seconds else failures + 1
            await timing.clock.sleep(self._pause_seconds(failures))

    def _least_failures(self, error: KubeClusterError) -> int:
        """As many failures as make the longest pause, where credentials have ended: nobody here renews them."""
        return 10 if error.status == UNAUTHORIZED else 0

    def _pause_seconds(self, failures: int) -> float:
        return 0.0 if not failures else min(self._timing.conditions_most_seconds, 2.0 ** min(failures - 1, 16))

    async def _changes(self, server: Server) -> AsyncIterator[Json]:
        version = self._resource.body["metadata"]["resourceVersion"]
        changes = server.changes(version, name=self._resource.name)
        async with aclosing(changes) as events:
            async for kind, body in events:
                if kind != "DELETED" and body.get("metadata", {}).get("name") == self._resource.name:
                    yield body

    async def _read(self, server: Server) -> None:
        self._take_over(await server.call("get", PLURAL, self._resource.name))

    def _take_over(self, body: Json) -> None:
        """Note the cluster as it is, unless it is older than what an answer to this program's own write said."""
        before, now = (each.get("metadata", {}) for each in (self._resource.body, body))
        is_same = before.get("uid") == now.get("uid")
        if not is_same or now.get("generation", math.inf) >= before.get("generation", 0):
            self._resource.update(body)

    async def _poll(self, server: Server) -> None:
        """Read the cluster again and again while the program waits, where it may not be watched."""
        pause_seconds = least = self._timing.conditions_poll_seconds
        while True:
            await self._timing.clock.sleep(pause_seconds)
            if not self._is_waited_for():
                pause_seconds = least
                continue
            pause_seconds = min(self._timing.conditions_most_seconds, 1.5 * pause_seconds)
            try:
                await self._read(server)
            except KubeClusterError as error:
                if error.status in (NOT_FOUND, FORBIDDEN):
                    return
