"""Times every call of the preload's code from outside, less what distributed does within it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

from gpudask.preload import part, routes, setup

OURS = "gpudask.preload"


class Clock:
    """Times calls of our code from outside, less what they call outside."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._depth = 0
        self._outside_seconds = 0.0

    def timed(self, function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        """Return the function, timed where it is not called by our own code."""
        name = name or function.__qualname__

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return function(*args, **kwargs)
            with self._inside(name):
                return function(*args, **kwargs)

        return call

    def outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of distributed's, whose time is not ours wherever it is called."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                return function(*args, **kwargs)
            depth, self._depth = self._depth, 0
            before, started = self._outside_seconds, time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth = depth
                self._outside_seconds = before + time.thread_time() - started

        return call

    def steps(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Return the coroutine, each of its steps timed."""

        class Steps:
            def __await__(steps) -> Generator[Any, Any, Any]:  # noqa: N805
                inner = coroutine.__await__()
                act: Callable[..., Any] = inner.send
                given: Any = None
                while True:
                    try:
                        with self._inside(name):
                            wanted = act(given)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        given, act = (yield wanted), inner.send
                    except BaseException as error:  # noqa: BLE001 (it is handed on)
                        given, act = error, inner.throw

        async def run() -> Any:
            return await Steps()

        return run()

    def _inside(self, name: str) -> Any:
        return _Inside(self, name)


class _Inside:
    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name

    def __enter__(self) -> None:
        clock = self._clock
        self._before = clock._depth, clock._outside_seconds  # noqa: SLF001
        clock._depth, clock._outside_seconds = 1, 0.0  # noqa: SLF001
        self._started = time.thread_time()

    def __exit__(self, *_: object) -> None:
        clock = self._clock
        seconds = time.thread_time() - self._started - clock._outside_seconds  # noqa: SLF001
        clock._depth, clock._outside_seconds = self._before  # noqa: SLF001
        clock.calls[self._name] += 1
        clock.seconds[self._name] = max(clock.seconds[self._name], seconds)


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith(OURS) and callable(function)


def watch_loop(clock: Clock) -> None:
    """Time the callbacks and the tasks that our code gives to the running loop."""
    loop: Any = asyncio.get_running_loop()
    for name, position in (("call_soon", 0), ("call_later", 1), ("call_at", 1)):
        loop.__dict__[name] = _with_timed(getattr(loop, name), position, clock)

    def make_task(loop: Any, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        code = getattr(coroutine, "cr_code", None)
        if code is not None and "gpudask/preload" in code.co_filename:
            coroutine = clock.steps(coroutine, coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **kwargs)

    loop.set_task_factory(make_task)


def _with_timed(schedule: Callable[..., Any], position: int, clock: Clock) -> Callable[..., Any]:
    def scheduled(*args: Any, **kwargs: Any) -> Any:
        if _is_ours(args[position]):
            args = (*args[:position], clock.timed(args[position]), *args[position + 1 :])
        return schedule(*args, **kwargs)

    return scheduled


async def install(scheduler: Any, clock: Clock) -> setup.Preload:
    """Install the preload, and time all by which distributed calls it."""
    for name in {name for one in part.Part.__subclasses__() for name in one.methods}:
        if not asyncio.iscoroutinefunction(getattr(scheduler, name)):
            scheduler.__dict__[name] = clock.outside(getattr(scheduler, name))
    handlers = scheduler.stream_handlers
    # A coroutine function has to stay one, or nobody awaits it; while it waits, the time is not its own anyway.
    plain = {op: handler for op, handler in handlers.items() if not asyncio.iscoroutinefunction(handler)}
    handlers.update({op: clock.outside(handler) for op, handler in plain.items()})
    preload: setup.Preload = await clock.steps(setup.install(scheduler), "install")
    handlers.update({op: clock.timed(handler) for op, handler in handlers.items() if _is_ours(handler)})
    for name in ("transition", "add_worker", "remove_worker", "update_graph", "restart"):
        preload.__dict__[name] = clock.timed(getattr(preload, name))
    standing_in = {name: method for name, method in vars(scheduler).items() if _is_ours(method)}
    scheduler.__dict__.update({name: clock.timed(method) for name, method in standing_in.items()})
    return preload


@contextlib.contextmanager
def timed_routes(clock: Clock) -> Iterator[None]:
    """Time the HTTP routes of all schedulers of this process."""
    found = [
        (route, method)
        for route in (routes.DemandRoute, routes.DesiredRoute, routes.TerminationRoute, routes.HealthRoute)
        for method in ("get", "post")
        if method in vars(route)
    ]
    originals = [vars(route)[method] for route, method in found]
    for (route, method), original in zip(found, originals, strict=True):
        setattr(route, method, _timed_route(original, clock))
    try:
        yield
    finally:
        for (route, method), original in zip(found, originals, strict=True):
            setattr(route, method, original)


def _timed_route(original: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    async def answer(*args: Any, **kwargs: Any) -> None:
        await clock.steps(original(*args, **kwargs), original.__qualname__)

    return answer
