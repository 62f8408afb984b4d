"""Timing: every interval and deadline of the client in one value, the clock, and the deadline of a wait.

And a wait in another thread, which Ctrl-C ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from gpudask.kubecluster.errors import KubeClusterError

T = TypeVar("T")
_CANCEL_SECONDS = 30.0


@dataclass(frozen=True)
class Clock:
    """The time, and waiting for it to pass.

    Attributes:
        monotonic: seconds, which never go back.
        sleep: until so many seconds have passed.
        now: the date and time, which others may have set.
    """

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Every interval and deadline of a `KubeCluster`, in seconds.

    Attributes:
        clock: what they are measured by.

        connect_seconds: to open a connection to the API server.
        answer_seconds: for which the API server may be silent, before and within its answer.
        watch_seconds: after which the API server is asked to end a watch.
        watch_pause_seconds: before a watch that broke is begun again; one that is not allowed is tried no more often.
        plugin_seconds: for a credential plugin: a person may have to log in in a browser meanwhile.
        plugin_shown_seconds: after which what a plugin says is shown, as it still runs: it asks somebody.
        upkeep_seconds: between two starts of a plugin to keep what the program has; each time twice as long where that
            was in vain,
        upkeep_most_seconds: and at most so long.
        busy_seconds: before an API server that is busy (429, 503) is asked again, where it does not say; then doubled.
        busy_most_seconds: the most of that, also where it says more.
        busy_tries: so many times, no seconds.
        request_seconds: for one request to the API server within a longer wait.
        least_request_seconds: that a request is given though the wait is over before: else a short wait gets no answer.

        found_seconds: to wait for the scheduler of a cluster that exists, where the program does not say.
        created_seconds: the same of a cluster that may be created.
        handshake_seconds: for a scheduler's first answer.
        retry_seconds: before what broke is tried again.
        versions_seconds: for the versions of the scheduler, and again for the workers'.

        readiness_poll_seconds: between two looks at a scheduler that is not there yet, where changes are not told.
        readiness_told_seconds: the same where they are.
        readiness_status_seconds: between two looks at what the operator says of it.
        accepted_seconds: for the operator to say whether it accepts a cluster that is new and whose scheduler runs.
        refused_pull_seconds: for which a pull of the scheduler's image may fail in a way that no other try mends.
        health_seconds: for a scheduler that starts to answer what the kubelet's probe asks.
        health_seldom_seconds: between two such questions in the first `health_first_seconds` of its pod: a scheduler
            that starts listens after a second or two. It is asked often then, and later ever less. Each time costs
            20 ms of CPU time altogether, which on a small machine is taken from the scheduler.
        health_first_seconds: see there.
        health_least_seconds: between two questions after that, at first.
        health_most_seconds: and in the end.

        scheduler_seconds: for one answer of the scheduler. Without a limit, a question into a connection that died
            unseen is waited for as long as TCP tries: for ever.
        outside_seconds: for a scheduler to answer at an outside address.

        outage_warn_seconds: for which a scheduler may be away before a warning: it may just restart.
        outage_look_seconds: between two looks for its cause while somebody waits.
        outage_idle_seconds: the same while nobody does.
        outage_tick_seconds: between two looks for clients that are about to give up.
        outage_pause_seconds: between two tries to reach it while a new client waits.
        outage_choose_seconds: between two choices of another way to it.
        outage_answer_seconds: for it to answer such a try.
        cause_seconds: to find out from the API server why it is away.

        conditions_tick_seconds: between two looks at what the cluster's status says.
        conditions_warn_seconds: for which something may be wrong before a warning; and for the scheduler to answer.
        conditions_again_seconds: for which something has to be well before it is told again.
        conditions_ask_seconds: between two questions to a scheduler while the program waits.
        conditions_poll_seconds: between two readings of the status where it may not be watched, at first,
        conditions_most_seconds: and at most; and before a watch that is lost again and again.

        workers_poll_seconds: between two questions how many workers run, if none comes or goes.
        workers_least_seconds: between two questions in any case.
        workers_most_seconds: between two questions where asking takes long.
        workers_progress_seconds: between two lines of what is waited for.
        workers_answer_seconds: for the scheduler's answer, where the wait itself is not shorter.
        progress_seconds: of a wait of which nothing is shown.

        forward_seconds: in which a connection to a forwarded port has to reach its pod, else it is cut.
        forward_scheduler_seconds: the same of the scheduler's port, where it has to be greeted, too; None: a third of
            the time in which Dask's clients give up.
        forward_least_seconds: but at least so long, that a busy scheduler can answer.
        forward_open_seconds: for the API server to open a port of a pod.
        forward_retry_seconds: before the pod is looked for again; each time twice as long,
        forward_most_seconds: and at most so long.
        forward_find_seconds: for which a pod that was found is taken for new connections without another look.
        forward_look_seconds: between two watches over the pods to which something is open; after one that failed twice
            as long,
        forward_seldom_seconds: and at most so long. Where pods may be listed only, between two lists.
        forward_ping_seconds: between two pings to a pod.
        forward_pong_seconds: for its answer, after which the connection is taken for broken.
        forward_keep_seconds: for which a connection that serves requests one by one is kept without any, at most twice
            as long.
        forward_cut_seconds: that what is cut may take to say goodbye.

        hold_lease_seconds: after which a hold ends by itself: a program that is killed gives nothing back.
        hold_renew_seconds: between two renewals by a program that lives.
        hold_release_seconds: for an API server that restarts to be back when a hold ends.
        creation_seconds: for the answer to a creation that is interrupted, and until one without an answer is there.
        exit_seconds: for a cluster to be deleted, when it is closed and when Python ends.
        notice_seconds: after which that is no longer silent.
    """

    clock: Clock = field(default_factory=Clock)

    connect_seconds: float = 10.0
    answer_seconds: float = 30.0
    watch_seconds: float = 240.0
    watch_pause_seconds: float = 10.0
    plugin_seconds: float = 120.0
    plugin_shown_seconds: float = 1.0
    upkeep_seconds: float = 30.0
    upkeep_most_seconds: float = 600.0
    busy_seconds: float = 0.5
    busy_most_seconds: float = 10.0
    busy_tries: int = 3
    request_seconds: float = 30.0
    least_request_seconds: float = 5.0

    found_seconds: float = 120.0
    created_seconds: float = 600.0
    handshake_seconds: float = 60.0
    retry_seconds: float = 1.0
    versions_seconds: float = 10.0

    readiness_poll_seconds: float = 0.5
    readiness_told_seconds: float = 5.0
    readiness_status_seconds: float = 1.0
    accepted_seconds: float = 5.0
    refused_pull_seconds: float = 15.0
    health_seconds: float = 1.0
    health_seldom_seconds: float = 0.5
    health_first_seconds: float = 1.0
    health_least_seconds: float = 0.3
    health_most_seconds: float = 1.0

    scheduler_seconds: float = 10.0
    outside_seconds: float = 3.0

    outage_warn_seconds: float = 5.0
    outage_look_seconds: float = 2.0
    outage_idle_seconds: float = 30.0
    outage_tick_seconds: float = 0.5
    outage_pause_seconds: float = 0.5
    outage_choose_seconds: float = 10.0
    outage_answer_seconds: float = 5.0
    cause_seconds: float = 5.0

    conditions_tick_seconds: float = 1.0
    conditions_warn_seconds: float = 5.0
    conditions_again_seconds: float = 60.0
    conditions_ask_seconds: float = 2.0
    conditions_poll_seconds: float = 4.0
    conditions_most_seconds: float = 60.0

    workers_poll_seconds: float = 0.25
    workers_least_seconds: float = 0.02
    workers_most_seconds: float = 2.0
    workers_progress_seconds: float = 2.0
    workers_answer_seconds: float = 30.0
    progress_seconds: float = 1.0

    forward_seconds: float = 8.0
    forward_scheduler_seconds: float | None = None
    forward_least_seconds: float = 5.0
    forward_open_seconds: float = 20.0
    forward_retry_seconds: float = 0.1
    forward_most_seconds: float = 1.0
    forward_find_seconds: float = 2.0
    forward_look_seconds: float = 3.0
    forward_seldom_seconds: float = 60.0
    forward_ping_seconds: float = 20.0
    forward_pong_seconds: float = 20.0
    forward_keep_seconds: float = 60.0
    forward_cut_seconds: float = 5.0

    hold_lease_seconds: float = 900.0
    hold_renew_seconds: float = 240.0
    hold_release_seconds: float = 30.0
    creation_seconds: float = 5.0
    exit_seconds: float = 15.0
    notice_seconds: float = 1.5


def run_or_cancel(sync: Callable[..., Any], work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Run `work` in the thread of an event loop, and return what it gives; it has ended when this does, also by Ctrl-C.

    Args:
        sync: Dask's, which after Ctrl-C does not wait for the end of what it runs; some releases cancel that.
        work: a coroutine function.
        *arguments: its.
    """
    running: list[asyncio.Task[T]] = []

    async def begin() -> T:
        running.append(asyncio.ensure_future(work(*arguments)))
        return await asyncio.shield(running[0])  # `end` alone cancels it: twice would cut short what it does about that

    async def end() -> None:
        await end_task(*running)

    try:
        return cast("T", sync(begin))
    except BaseException:
        with contextlib.suppress(TimeoutError):
            sync(end, callback_timeout=_CANCEL_SECONDS)
        raise


async def end_task(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, those that there are, and wait until they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()  # also where it says that it is being cancelled: so does one of which anyio cancels a part
    if running:
        await asyncio.wait(running)


def limit_of(timeout: float | str | None) -> float | None:
    """The seconds of a time limit as a user writes it: a number, or a duration as Dask reads it, such as `10m`.

    Raises:
        KubeClusterError: it is neither.
    """
    from dask.utils import parse_timedelta  # noqa: PLC0415 - most commands of the command line need nothing of Dask

    try:
        return None if timeout is None else float(parse_timedelta(timeout, default="s"))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise KubeClusterError(
            f"timeout={timeout!r}",
            reason="it is no time limit",
            next_step="Write seconds, such as 600, or a duration, such as '10m'",
        ) from error


def start_limit(
    timeout: float | str | None, resource_timeout: float | str | None, *, creates: bool, timing: Timing
) -> float:
    """The seconds to wait for the scheduler: by either argument, or by whether the cluster may be created.

    Raises:
        KubeClusterError: both are given, or what is given is no time limit.
    """
    if timeout is not None and resource_timeout is not None:
        raise KubeClusterError(
            f"timeout={timeout} beside resource_timeout={resource_timeout}",
            reason="both are the seconds to wait for the scheduler",
            next_step="Write timeout= alone",
        )
    given = limit_of(resource_timeout if timeout is None else timeout)
    default = timing.created_seconds if creates else timing.found_seconds
    return default if given is None else given


class Deadline:
    """The end of one wait, and the reason why the last request failed: an API server that restarts is asked again.

    Attributes:
        limit_seconds: of the whole wait, which may be given as a duration; None: it goes on for ever.
        trouble: why the last request was not answered; empty where it was.
    """

    def __init__(self, limit_seconds: float | str | None, timing: Timing) -> None:
        self.limit_seconds = limit_of(limit_seconds)
        self.trouble = ""
        self._timing = timing
        self._end = None if self.limit_seconds is None else timing.clock.monotonic() + self.limit_seconds

    @property
    def is_over(self) -> bool:
        """True if it has passed; never without a limit."""
        return self._end is not None and self._timing.clock.monotonic() > self._end

    @property
    def left_seconds(self) -> float:
        """Seconds until it has passed, 0 after that; infinite without a limit."""
        return math.inf if self._end is None else max(0.0, self._end - self._timing.clock.monotonic())

    def within(self, most_seconds: float) -> float:
        """Seconds for one request: `most_seconds`, or less where the deadline is near."""
        if self._end is None:
            return most_seconds
        return min(most_seconds, max(self._timing.least_request_seconds, self._end - self._timing.clock.monotonic()))

    async def attempt(self, request: Awaitable[T]) -> T | None:
        """Await one answer of the API server; None where it did not come, and may later: `trouble` has the reason.

        Raises:
            KubeClusterError: its answer is no, and will be: a right is missing, there is no such object.
        """
        within_seconds = self.within(self._timing.request_seconds)
        try:
            async with asyncio.timeout(within_seconds):
                answer = await request
        except TimeoutError:
            self.trouble = f"the API server does not answer: no answer within {within_seconds:g} s"
            return None
        except KubeClusterError as error:
            if not error.may_pass:
                raise
            self.trouble = f"the API server does not answer: {error.reason}"
            return None
        self.trouble = ""
        return answer
