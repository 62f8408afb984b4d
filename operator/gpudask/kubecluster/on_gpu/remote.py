"""What runs on the worker: a function of the user, as a client part. It travels by value: the worker needs no gpudask.

So it imports what each worker has, and nothing of this package. What a run gives is plain data, which a program without
a device can always take in: the result and the error are bytes in it.
"""

# mypy: disallow-untyped-calls=False, disallow-subclassing-any=False
from __future__ import annotations

import asyncio
import ctypes
import io
import linecache
import pickle
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

import cloudpickle
import dask
from distributed import Event, Future, get_client, get_worker, secede

# What `gpudask.graphs.modules` of Dask's configuration names where it names nothing: whose values need a device.
DEVICE_MODULES = (
    *("cudf", "dask_cudf", "cupy", "cupyx", "cuml", "cugraph", "cuspatial", "cucim", "cuvs", "cuxfilter", "raft_dask"),
    *("pylibcudf", "pylibraft", "rmm", "numba_cuda", "numba.cuda"),
)
PACKAGE = "gpudask.kubecluster.on_gpu."
TOPIC = "gpudask-on-gpu"  # one for all runs: the scheduler keeps the last 1,000 events of each topic for ever
POLL_SECONDS = 0.1  # between two looks at whether the run is still wanted, and at what it has printed
MOST_OUTPUT = 1_000_000  # characters of a run that are forwarded; the rest is in the pod's log alone
CHUNK = 8_000  # characters of one message
NAMED = 3  # types that are named, of those that need a device


def run(call: bytes, run_id: str) -> dict[str, Any]:
    """Call a pickled function in this task's thread, which leaves its slot to other tasks.

    Args:
        call: the function, its positional and its keyword arguments.
        run_id: its name in the scheduler's events `TOPIC`, where it is said that it began, and what it prints; also
            that of a `distributed.Event` which says that somebody has begun it already.

    Returns:
        `state`: `done` with the pickled `result`, `failed` with the `error`, its `type` and `text`, or why it did not
        begin: `lent` (no GPU here), `repeated` (its first worker died), `unread` (the call cannot be unpickled).
    """
    worker = get_worker()
    if getattr(worker, "gpudask_lent", ()):  # set by preload/offers.py
        return {"state": "lent", "worker": str(worker.name)}
    claimed = Event(run_id, client=get_client())
    if claimed.is_set():
        return {"state": "repeated"}
    claimed.set()
    secede()
    output = Output(worker, run_id)
    worker.log_event(TOPIC, {"run": run_id, "began": worker.address, "name": str(worker.name)})
    with output, Watch(worker, worker.get_current_task(), output):
        return outcome_of(call)


def outcome_of(call: bytes) -> dict[str, Any]:
    """Call it, and return what came of it as plain data."""
    try:
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - as Dask does: the program is its user's
    except Exception as error:  # noqa: BLE001 - whatever a foreign type raises
        return {"state": "unread", "text": f"{type(error).__name__}: {error}"}
    try:
        return {"state": "done"} | pickled(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the program's that called
        return {"state": "failed"} | failure(error)


def future_here(key: Any) -> Any:
    """The program's future as one of this worker's client: a future that is unpickled has none."""
    client: Any = get_client()
    future: Any = Future(key)
    future.bind_client(client)
    client._send_to_scheduler({"op": "client-desires-keys", "keys": [key], "client": client.id})  # noqa: SLF001
    return future


def run_script(source: str, path: str, arguments: list[str]) -> int:
    """Run a script as `__main__`, and return its exit status."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)  # for its tracebacks
    before, sys.argv = sys.argv, [path, *arguments]
    try:
        code = compile(source, path, "exec", dont_inherit=True)  # not this file's `from __future__`
        exec(code, {"__name__": "__main__", "__file__": path})  # noqa: S102 - what it is for
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)  # noqa: T201 - as Python does
            return 1
        return ended.code or 0
    finally:
        sys.argv = before
    return 0


def pickled(value: Any, most_bytes: int | None = None) -> dict[str, Any]:
    """Pickle `value`: `result`, and in `device` the types in it that need one.

    Raises:
        Exception: it cannot be pickled, or is larger than `most_bytes` (an OverflowError).
    """
    into = Bounded(most_bytes)
    pickler = ResultPickler(into)
    pickler.dump(value)
    return {"result": into.getvalue(), "device": pickler.device_types}


def failure(error: BaseException) -> dict[str, Any]:
    """An error as plain data, without the frames of this module."""
    from tblib import pickling_support  # noqa: PLC0415 - distributed's; here, since the module travels by value

    pickling_support.install()
    trace = own_frames(error.__traceback__)
    error.__traceback__ = trace
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        data: bytes | None = cloudpickle.dumps((error, trace))
    except Exception:  # noqa: BLE001 - its text is what is left of it
        data = None
    return {"error": data, "type": type(error).__name__, "text": text[-MOST_OUTPUT:]}


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is not of this package; all of it where there is none."""
    first = trace
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith(PACKAGE):
        first = first.tb_next
    return first or trace


class Bounded(io.BytesIO):
    """Bytes in memory, so many at most."""

    def __init__(self, most_bytes: int | None) -> None:
        super().__init__()
        self.most_bytes = most_bytes

    def write(self, data: Any) -> int:
        """Write, as a file does."""
        if self.most_bytes is not None and self.tell() + len(memoryview(data).cast("B")) > self.most_bytes:
            raise OverflowError(f"it is larger than {self.most_bytes / 1e6:g} MB")
        return io.BytesIO.write(self, data)


class ResultPickler(cloudpickle.Pickler):
    """Notes which values need a device, and refuses what would be void once the run has ended."""

    def __init__(self, file: Any) -> None:
        cloudpickle.Pickler.__init__(self, file)
        self.device_types: list[str] = []
        self.modules = tuple(dask.config.get("gpudask.graphs.modules", None) or DEVICE_MODULES)

    def reducer_override(self, value: Any) -> Any:
        """Look at a value on its way, and pickle it as cloudpickle does."""
        if isinstance(value, Future):
            raise TypeError("a Future, or a collection that was persisted, is released when what made it ends")
        of = value if isinstance(value, type) else type(value)
        name = f"{of.__module__}.{of.__qualname__}"
        is_known = name in self.device_types or len(self.device_types) >= NAMED
        if not is_known and any(f"{name}.".startswith(f"{module}.") for module in self.modules):
            self.device_types.append(name)
        return cloudpickle.Pickler.reducer_override(self, value)


class Watch:
    """Ends the run when nobody wants it any more: its program was interrupted, or is gone.

    An exception is raised in its thread, between two steps of Python: one that waits in a library comes back first.
    """

    def __init__(self, worker: Any, key: Any, output: Output) -> None:
        self.worker, self.key, self.output = worker, key, output
        self.thread = threading.get_ident()
        self.lock = threading.Lock()
        self.has_ended = False

    def __enter__(self) -> None:
        self.worker.loop.add_callback(self.follow)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.has_ended = True

    async def follow(self) -> None:
        """Look, and forward what was printed, until the run has ended."""
        while not self.has_ended:
            self.output.send()
            ts = self.worker.state.tasks.get(self.key)
            if ts is None or ts.state == "cancelled":
                self.interrupt()
                return
            await asyncio.sleep(POLL_SECONDS)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the run's thread."""
        with self.lock:
            if not self.has_ended:
                interrupted = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), interrupted)


class Output:
    """What the run's thread prints goes to its program as well, in order, up to `MOST_OUTPUT` characters."""

    def __init__(self, worker: Any, run_id: str) -> None:
        self.worker, self.run_id = worker, run_id
        self.lock = threading.Lock()
        self.chunks: list[tuple[str, str]] = []  # stream, text
        self.left = MOST_OUTPUT

    def __enter__(self) -> None:
        for stream in ("stdout", "stderr"):
            sinks_of(stream)[threading.get_ident()] = lambda text, stream=stream: self.add(stream, text)

    def __exit__(self, *_: object) -> None:
        for stream in ("stdout", "stderr"):
            sinks_of(stream).pop(threading.get_ident(), None)
        self.send()

    def add(self, stream: str, text: str) -> None:
        """Take in what was printed."""
        with self.lock:
            if self.left <= 0:
                return
            kept, self.left = text[: self.left], self.left - len(text)
            if self.chunks and self.chunks[-1][0] == stream:
                kept = self.chunks.pop()[1] + kept
            self.chunks.append((stream, kept))
            if self.left <= 0:
                self.chunks.append(("stderr", "\n[gpudask: what else it prints is in the worker's log alone]\n"))
        if len(kept) > CHUNK:
            self.send()

    def send(self) -> None:
        """Send what has come together."""
        with self.lock:  # also around the sending: another thread may be about to send what comes after
            chunks, self.chunks = self.chunks, []
            for stream, text in chunks:
                for start in range(0, len(text), CHUNK):
                    chunk = {"run": self.run_id, "stream": stream, "text": text[start : start + CHUNK]}
                    self.worker.log_event(TOPIC, chunk)


def sinks_of(stream: str) -> dict[int, Any]:
    """Where a stream of this process goes besides, by thread; the stream is replaced by one that does so."""
    present = getattr(sys, stream)
    sinks: dict[int, Any] | None = getattr(present, "gpudask_sinks", None)
    if sinks is None:
        sinks = {}
        setattr(sys, stream, Routed(present, sinks))
    return sinks


class Routed(io.TextIOBase):
    """A stream as it was, that also gives to each thread's sink what this thread writes."""

    def __init__(self, stream: Any, sinks: dict[int, Any]) -> None:
        io.TextIOBase.__init__(self)
        self.stream, self.gpudask_sinks = stream, sinks

    def write(self, text: str) -> int:
        """Write to both."""
        self.stream.write(text)
        sink = self.gpudask_sinks.get(threading.get_ident())
        # `distributed.print` tells all clients by itself.
        if sink is not None and sys._getframe(1).f_globals.get("__name__") != "distributed.worker":  # noqa: SLF001
            sink(text)
        return len(text)

    def flush(self) -> None:
        """As the stream does."""
        self.stream.flush()

    def fileno(self) -> int:
        """As the stream does."""
        return int(self.stream.fileno())

    def isatty(self) -> bool:
        """It is none: the program's may be."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's."""
        return str(self.stream.encoding)

    @property
    def buffer(self) -> Any:
        """The stream's own: bytes are not forwarded."""
        return self.stream.buffer
