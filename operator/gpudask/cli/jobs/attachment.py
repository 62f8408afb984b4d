"""Following a job to its end: the log of one runner after the other, and what the job says between.

The job's status says how many runners were begun and when it has ended; each runner's pod has its log. Neither needs
the other: a log that cannot be read hides no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import typer

from gpudask.api import Json
from gpudask.api.resource import JOB_PLURAL
from gpudask.api.untrusted_text import quote
from gpudask.cli.output import CliError, write_message
from gpudask.cli.untrusted import field, lines, log_line, objects, text, whole
from gpudask.cli.watch import follow
from gpudask.kubecluster.errors import SILENT, KubeClusterError, why_pod_waits

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_LOOK_SECONDS = 1.0
_MOST_PAUSE_SECONDS = 10.0
_QUIET_SECONDS = 3.0  # of a wait, before it is said what for: most are over then
_TRIES = 3  # at the log of a runner that is over
_ENDED = ("Succeeded", "Failed")  # phases of a pod
_COMPLETE, _FAILED = "Complete", "Failed"  # conditions
_MOST_ATTEMPTS = 1000
_MOST_CODE = 255


class Attachment:
    """One job, followed.

    Args:
        server: where it is.
        body: the job as last read.
        silence_seconds: as `PodLog`.
    """

    def __init__(self, server: Server, body: Json, *, silence_seconds: float | None = None) -> None:
        self._server, self._body = server, body
        self._silence_seconds = silence_seconds
        self._name = str(body["metadata"]["name"])
        self._uid = str(body["metadata"]["uid"])
        self._is_there = True
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._said = ""
        self._printed = 0  # lines of the present runner
        self._pod_name = ""
        self._end = ""  # of the present runner, as its pod tells it

    async def follow(self) -> int:
        """Print the log until the job ends; return the exit code that it ends with.

        Raises:
            CliError: the job failed or was deleted; it has the exit code.
            KubeClusterError: the API server refuses.
        """
        self._watching = asyncio.create_task(self._watch())
        try:
            attempt = max(1, self._state.attempts)
            while not await self._follow_attempt(attempt):
                attempt += 1
            return self._finish()
        finally:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    # ------------------------------------------------------------------ the job

    @property
    def _state(self) -> JobState:
        return _job_state(self._body)

    @property
    def _is_over(self) -> bool:
        return not self._is_there or self._state.has_ended

    async def _watch(self) -> None:
        async with aclosing(follow(self._server, [self._name], resource=JOB_PLURAL)) as changes:
            async for body, there in changes:
                if there and body["metadata"]["uid"] == self._uid:
                    self._body = body
                else:
                    self._is_there = False
                self._changed.set()

    async def _wait(self, seconds: float) -> None:
        """Wait until the job changed, or so many seconds have passed.

        Raises:
            KubeClusterError: it can be read no more.
        """
        assert self._watching is not None
        if self._watching.done():
            self._watching.result()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _finish(self) -> int:
        state = self._state
        if not state.has_ended:
            raise CliError(f"job {self._name!r} was deleted meanwhile")
        if not self._printed and state.last_lines and state.pod == self._pod_name:
            write_message("its log cannot be read any more; these are the last lines that the operator kept:")
            typer.echo(state.last_lines)
        if state.exit_code:
            write_message(f"error: job {self._name!r} failed: {state.message or 'its status does not say why'}")
        return state.exit_code

    # ------------------------------------------------------------------ one runner

    async def _follow_attempt(self, attempt: int) -> bool:
        """Follow one runner until the job has ended with it, which is True, or the next runner was begun."""
        self._pod_name = pod_name = f"{self._name}-runner-{attempt}"
        self._printed, self._end = 0, "is over"
        container = await self._started(pod_name, attempt)
        if container:
            await self._print_log(pod_name, attempt, container)
        waited = 0.0
        while not self._is_over and self._state.attempts <= attempt:
            if waited >= _QUIET_SECONDS:
                self._say(f"the runner {self._end}; {self._state.why or SILENT}")
            await self._wait(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        if self._state.attempts <= attempt:
            return True
        self._said = ""
        write_message(f"attempt {attempt} {self._end}; attempt {attempt + 1} begins")
        return False

    def _has_moved_on(self, attempt: int) -> bool:
        return self._is_over or self._state.attempts > attempt

    async def _started(self, pod_name: str, attempt: int) -> str:
        """The runner's container, once it has started; empty where it never does or its pod may not be read."""
        waited = 0.0
        while True:
            moved_on = self._has_moved_on(attempt)  # of before the look: its pod may come and go between
            try:
                pod = await self._pod(pod_name)
            except KubeClusterError as error:
                if not error.may_pass:
                    write_message(f"no log: {quote(str(error), 1000)}")
                    return ""
            else:
                if pod is not None and _state_of(pod) in ("running", "terminated"):
                    return _container(pod)
                if moved_on:
                    return ""
                if waited >= _QUIET_SECONDS:
                    self._say(self._why(pod))
            await self._wait(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    async def _pod(self, name: str) -> Json | None:
        try:
            return await self._server.call("get", "pods", name)
        except KubeClusterError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _why(self, pod: Json | None) -> str:
        """What the runner waits for."""
        if pod is not None:
            return _why_pod_waits(pod)
        if field(self._body, "spec", "suspend") is True:
            patch = """-p '{"spec":{"suspend":false}}'"""
            return f"the job is suspended: kubectl patch gdj {self._name} --type=merge {patch} lets it run"
        if not isinstance(field(self._body, "status"), dict):
            return SILENT
        return self._state.why

    def _say(self, why: str) -> None:
        if why and why != self._said:
            write_message(f"waiting: {why}")
            self._said = why

    async def _print_log(self, pod_name: str, attempt: int, container: str) -> None:
        """Print the log of a runner to its end, or as much of it as there is."""
        from gpudask.kubecluster.kube.pod_log import SILENCE_SECONDS, PodLog  # noqa: PLC0415 - httpx comes with it

        log = PodLog(self._server, pod_name, container, silence_seconds=self._silence_seconds or SILENCE_SECONDS)
        told, failures, pause = "", 0, _LOOK_SECONDS
        while True:
            moved_on, printed = self._has_moved_on(attempt), self._printed
            error = await self._tried(self._print_lines(log.follow))
            pod, unread = await self._looked(pod_name)
            if pod is not None and _state_of(pod) == "terminated":
                self._end = _end_of(pod)
                error = await self._tried(self._print_lines(log.rest))
                if error is None or error.status == HTTPStatus.BAD_REQUEST:  # the server's word for what never ran
                    return
            error = unread or error
            if error is not None and _is_final(error):
                write_message(f"the rest of the log of pod {pod_name} cannot be read: {quote(str(error), 1000)}")
                return
            # Where the API server answers and the kubelet does not, as on a node that was lost.
            failures += int(moved_on and unread is None and error is not None and self._printed == printed)
            if failures >= _TRIES:
                write_message(f"the rest of the log of pod {pod_name} cannot be read: its node does not answer")
                return
            if error is not None and not error.unanswered and error.reason != told:
                told = error.reason
                write_message(f"the log of pod {pod_name} cannot be read, trying again: {quote(told)}")
            pause = _LOOK_SECONDS if self._printed > printed else min(2 * pause, _MOST_PAUSE_SECONDS)
            await self._wait(pause)

    async def _looked(self, name: str) -> tuple[Json | None, KubeClusterError | None]:
        """A pod that was there, or why it cannot be read."""
        try:
            return await self._server.call("get", "pods", name), None
        except KubeClusterError as error:
            return None, error

    @staticmethod
    async def _tried(work: Awaitable[None]) -> KubeClusterError | None:
        try:
            await work
        except KubeClusterError as error:
            return error
        return None

    async def _print_lines(self, read: Callable[[], AsyncGenerator[str, None]]) -> None:
        async with aclosing(read()) as log:
            async for line in log:
                self._printed += 1
                typer.echo(log_line(line))


@dataclass(frozen=True)
class JobState:
    """The state of a GpuDaskJob, read from what the API server has of it: total, whatever stands there.

    Attributes:
        attempts: the runners that were begun.
        has_ended: whether it ended, for good.
        exit_code: what the command line ends with then: the runner's exit code, which is 128 and the signal's number
            where one ended it; 1 where it never ran or is not known.
        message: why it failed; empty where it did not.
        why: what it waits for now; empty where its status does not say.
        pod: the name of the last runner's pod, whose last lines `last_lines` are.
    """

    attempts: int
    has_ended: bool
    exit_code: int
    message: str
    why: str
    pod: str
    last_lines: str


def _job_state(body: Json) -> JobState:
    """The state that `body` tells."""
    failure = _condition(body, _FAILED)
    is_complete = _condition(body, _COMPLETE) is not None
    return JobState(
        attempts=max(0, min(whole(body, "status", "attempts"), _MOST_ATTEMPTS)),
        has_ended=is_complete or failure is not None,
        exit_code=0 if is_complete else _failure_code(whole(body, "status", "runner", "exitCode")),
        message="" if failure is None or is_complete else _told(failure),
        why=_told(field(body, "status")),
        pod=text(body, "status", "runner", "pod", length=253),
        last_lines=lines(body, "status", "runner", "lastLines"),
    )


def _condition(body: Json, kind: str) -> Json | None:
    found = objects(body, "status", "conditions", most=100)
    return next((item for item in found if item.get("type") == kind and item.get("status") == "True"), None)


def _failure_code(code: int) -> int:
    return code if 0 < code <= _MOST_CODE else 1


def _told(item: object) -> str:
    """The reason and the message of a condition or of a status."""
    reason, message = text(item, "reason"), text(item, "message", length=1000)
    return ": ".join(part for part in (reason, message) if part)


def _is_final(error: KubeClusterError) -> bool:
    """True if the same would come again: there is no such pod any more, or it may not be read."""
    return error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def _container(pod: Json) -> str:
    """The name of the runner's container, which is the first."""
    return str(next(iter(objects(pod, "spec", "containers")), {}).get("name", ""))


def _container_state(pod: Json) -> Json:
    found = objects(pod, "status", "containerStatuses")
    state = next((item.get("state") for item in found if item.get("name") == _container(pod)), None)
    return state if isinstance(state, dict) else {}


def _state_of(pod: Json) -> str:
    """`waiting`, `running` or `terminated`, of the runner's container."""
    if field(pod, "status", "phase") in _ENDED:
        return "terminated"
    state = _container_state(pod)
    return next((kind for kind in ("terminated", "running") if state.get(kind)), "waiting")


def _end_of(pod: Json) -> str:
    """How a runner ended, in the words of its pod."""
    ended = _container_state(pod).get("terminated")
    reason = text(ended, "reason") or text(pod, "status", "reason")
    if not isinstance(ended, dict):
        return f"ended ({reason or 'its pod does not say how'})"
    return f"ended with exit code {whole(ended, 'exitCode')}" + (f" ({reason})" if reason not in ("", "Error") else "")


def _why_pod_waits(pod: Json) -> str:
    try:
        return quote(why_pod_waits(pod), 1000)
    except (AttributeError, KeyError, TypeError):  # a status that is not of Kubernetes' shape
        return ""
