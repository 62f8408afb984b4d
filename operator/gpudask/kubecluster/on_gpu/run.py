"""One run on a GPU worker, from the program's side: sent, waited for, and cancelled with what waits for it.

It never runs twice: the first worker that begins it claims it, and where that one is lost this is an error.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import contextlib
import io
import pickle
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import cloudpickle
from distributed import Client, Event, Future, default_client

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.on_gpu import cells, remote

_LOOK_SECONDS = 2.0  # between two looks at whether the worker is still there
_BY_VALUE = (remote, cells)
_WITHOUT_DEVICE = (
    "Return what needs no device: frame.to_pandas() of cuDF, array.get() of CuPy, numbers; or leave it on the cluster:"
    " client.persist and client.publish_dataset, or files"
)


@dataclass(frozen=True)
class Call:
    """A function with its arguments, as bytes, and the name that it has for people."""

    name: str
    data: bytes = field(repr=False)

    @classmethod
    def of(
        cls, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Call:
        """Pickle a call; what of this package runs there goes by value.

        Raises:
            KubeClusterError: something of it cannot be pickled.
        """
        name = str(getattr(function, "__name__", type(function).__name__))
        try:
            return cls(name, by_value((function, tuple(args), dict(kwargs or {}))))
        except Exception as error:
            raise KubeClusterError(
                f"{name} cannot be sent to a GPU worker",
                reason=f"{type(error).__name__}: {error}",
                next_step="Make connections, locks, open files and clusters inside of it; the client there is"
                " distributed.get_client()",
            ) from error


@dataclass(frozen=True)
class Outcome:
    """What came of a run, still as bytes: taken in by the thread that asked for it."""

    name: str
    answer: Mapping[str, Any]
    worker: str = ""

    def value(self) -> Any:
        """The result.

        Raises:
            KubeClusterError: it did not run there, its worker was lost, or what it gave cannot be read here.
            BaseException: what the function raised, with its own traceback.
        """
        match self.answer.get("state"):
            case "done":
                return self._loaded()
            case "failed":
                raise_remote(self.name, self.answer)
            case "lent":
                raise KubeClusterError(
                    f"{self.name} did not run",
                    reason=f"worker {self.answer.get('worker')} takes GPU tasks for a while, without a GPU: `fallback`",
                    next_step="Call it again once the GPU pool has a worker: cluster.wait_for_workers(1, pool='gpu')",
                )
            case "unread":
                raise KubeClusterError(
                    f"{self.name} cannot be read on worker {self.worker}",
                    reason=str(self.answer.get("text")),
                    next_step="Bring the program's own modules there: client.upload_file('module.py'), or"
                    " cloudpickle.register_pickle_by_value(module) before",
                )
            case "repeated":
                raise lost(self.name, self.worker)
        raise KubeClusterError(
            f"{self.name} gave no answer that can be read",
            reason=f"it is {type(self.answer).__name__}",
            next_step="Compare the versions of distributed: docs/versions.md",
        )

    def _loaded(self) -> Any:
        try:
            return pickle.loads(self.answer["result"])  # noqa: S301 - as Dask's results: of the program's own workers
        except Exception as error:
            device = self.answer.get("device") or ()
            what = f"it holds {', '.join(map(str, device))}, and here is " if device else ""
            raise KubeClusterError(
                f"the result of {self.name} cannot be read in this program",
                reason=f"{what}{type(error).__name__}: {error}",
                next_step=_WITHOUT_DEVICE,
            ) from error


class Runs:
    """What one client runs there.

    Args:
        client: an asynchronous one, which nobody else closes.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.by_id: dict[str, Run] = {}
        client.subscribe_topic(remote.TOPIC, self._on_event)
        with contextlib.suppress(ValueError):  # the program has no client of its own
            default_client()
            for topic in ("print", "warn"):  # of tasks, which its own client prints
                client.unsubscribe_topic(topic)

    def run(self, call: Call, resources: Mapping[str, float], workers: Sequence[str] | None = None) -> Run:
        """A run, which begins when its `outcome` is awaited.

        Args:
            call: what to run.
            resources: what it asks for.
            workers: addresses, of which one is to run it; None: any that offers the resources.
        """
        return Run(self, call, resources, workers)

    def _on_event(self, event: Any) -> None:
        """Hand what a worker says to its run: others' are heard, too."""
        message = event[1] if isinstance(event, tuple | list) and len(event) == 2 else None  # noqa: PLR2004
        run_id = message.get("run") if isinstance(message, dict) else None
        if isinstance(message, dict) and isinstance(run_id, str) and run_id in self.by_id:
            self.by_id[run_id].hear(message)


class Run:
    """A call on its way; `Runs.run` makes it.

    Attributes:
        began: set once a worker has begun.
        worker: that worker's name, for people; empty before.
        address: its address.
    """

    def __init__(self, runs: Runs, call: Call, resources: Mapping[str, float], workers: Sequence[str] | None) -> None:
        self.began = asyncio.Event()
        self.worker = ""
        self.address = ""
        self._runs, self._client, self._call = runs, runs.client, call
        self._resources, self._workers = dict(resources), workers
        self._id = f"gpudask-on-gpu-{secrets.token_hex(8)}"

    async def outcome(self) -> Outcome:
        """Submit it and wait for its end; a cancellation of this cancels it.

        Raises:
            KubeClusterError: its worker was lost, or Dask did not run it.
        """
        self._runs.by_id[self._id] = self
        future: Any = self._client.submit(
            _task(),
            by_value(remote.run),
            self._call.data,
            self._id,
            key=f"on_gpu_{re.sub(r'[^A-Za-z0-9_]', '', self._call.name)[:60]}-{self._id}",
            resources=self._resources,
            workers=self._workers,
            allow_other_workers=False,
            retries=0,
            pure=False,
        )
        ended = asyncio.ensure_future(future._state.wait())  # noqa: SLF001 - gather leaves tasks behind, cut short
        try:
            await self._wait(ended)
            return Outcome(self._call.name, await self._answer(future), self.worker)
        finally:
            ended.cancel()
            await self._end(future)

    async def _wait(self, ended: asyncio.Future[Any]) -> None:
        while not ended.done():
            await asyncio.wait([ended], timeout=_LOOK_SECONDS)
            if not ended.done() and self.began.is_set() and not await self._is_there(self.address):
                raise lost(self._call.name, self.worker)
            if not ended.done() and self._workers and not await self._is_there(*self._workers):
                raise lost(self._call.name, self.worker or ", ".join(self._workers))

    async def _answer(self, future: Any) -> Mapping[str, Any]:
        try:
            found = await self._client.gather(future)
        except Exception as error:
            raise KubeClusterError(
                f"{self._call.name} was not run to its end",
                reason=f"{type(error).__name__}: {error}",
                next_step="It may have done a part of its work: call it again if that does no harm",
            ) from error
        return found if isinstance(found, dict) else {}

    async def _is_there(self, *addresses: str) -> bool:
        """True if any of these workers is, or the scheduler cannot say."""
        try:
            scheduler: Any = self._client.scheduler
            return bool(await scheduler.ncores(workers=list(addresses)))
        except OSError:
            return True

    async def _end(self, future: Any) -> None:
        """Cancel it, where it has not ended, and leave nothing of it with the scheduler."""
        is_over = future.done()
        self._runs.by_id.pop(self._id, None)
        try:
            await self._client.cancel([future])
            if is_over:  # else a worker that is given it just now would not know that it was begun before
                await Event(self._id, client=self._client).clear()
        except OSError:
            return  # the scheduler is gone, and all of it with it

    def hear(self, message: Mapping[str, Any]) -> None:
        """Take in what the worker says: where it began, and what is printed."""
        if isinstance(message.get("began"), str):
            self.address, self.worker = message["began"], str(message.get("name"))
            self.began.set()
        if isinstance(message.get("text"), str):
            stream = sys.stderr if message.get("stream") == "stderr" else sys.stdout
            stream.write(message["text"])
            stream.flush()


def lost(name: str, worker: str) -> KubeClusterError:
    """The error of a run whose worker went while it ran."""
    return KubeClusterError(
        f"{name} was not run to its end",
        reason=f"worker {worker or 'of its first try'} is gone, on which it ran",
        next_step="It may have done a part of its work, so it is not run again by itself: call it again if that does no"
        " harm. cluster.get_logs() and gpudask history say how the pod ended",
    )


def raise_remote(name: str, failure: Mapping[str, Any]) -> None:
    """Raise what was raised there, with its traceback; where it cannot be read here, its text.

    Raises:
        BaseException: always.
    """
    from tblib import pickling_support  # noqa: PLC0415 - distributed's own

    pickling_support.install()
    error, trace = None, None
    try:
        error, trace = pickle.loads(failure["error"])  # noqa: S301 - see Outcome
    except Exception:  # noqa: BLE001 - of a class that is not here, or that needs a device
        error = None
    if not isinstance(error, BaseException):
        raise KubeClusterError(
            f"{name} failed on its GPU worker",
            reason=f"{failure.get('type')}, which cannot be read in this program",
            next_step=f"Its traceback there:\n{failure.get('text')}",
        )
    raise error.with_traceback(trace)


def _task() -> Callable[..., Any]:
    """The task's function: one in another travels by value, so neither scheduler nor worker needs this package."""

    def on_gpu(runner: bytes, *arguments: Any) -> Any:
        import pickle as here  # noqa: PLC0415

        return here.loads(runner)(*arguments)  # noqa: S301

    return on_gpu


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Makes each of the program's futures, also those of collections, one of the client that the worker has."""

    def reducer_override(self, value: Any) -> Any:
        """As cloudpickle does, but for futures."""
        if isinstance(value, Future):
            return remote.future_here, (value.key,)
        return super().reducer_override(value)


def by_value(value: Any) -> bytes:
    """Pickle for the worker, with what is of this package by value."""
    registered: list[ModuleType] = []
    into = io.BytesIO()
    try:
        for module in _BY_VALUE:
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
        _Pickler(into).dump(value)
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
    return into.getvalue()
