"""The worker of `dask cuda worker` in the command's own process, where dask-cuda would start a nanny and a second one.

A preload of that command: Dask runs it where the command line is parsed, and takes the text of a script for one. So it
needs nothing in the image, and stands between what dask-cuda makes of its options and the nanny that it gives them to.
That nanny is made all the same, and asked what it would tell its worker; it is not started. Where anything is not as it
was when this was written, it is, and a line in the log says why: a worker with a nanny is slower to start, and works.

The device's context is made by the driver in a thread, beside imports and the worker's start. What nobody has asked for
yet is put off until the worker is registered: cuDF, which a plugin of dask-cuda imports to set two options, and Bokeh.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask_cuda.cuda_worker
import dask_cuda.plugins
from distributed import nanny as nannies
from distributed.core import Status
from distributed.worker import Worker

# In the text of this preload, and in no other.
MARK = "gpudask: the worker in one process"
CREATE_CONTEXT = "--create-cuda-context"
# After the worker was registered: its first task comes first.
DASHBOARD_SECONDS = 5.0
# Of what a nanny is given to close, it gives its worker so much.
_WORKERS_SHARE = 0.8
_TOLD = ("worker_kwargs", "worker", "env", "config")
logger = logging.getLogger("distributed.gpudask.launcher")


class Context:
    """The context of the first device that this process sees, made in a thread."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._context = ctypes.c_void_p()
        self._thread = threading.Thread(target=self._make, name="CUDA context", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, command_line: list[str]) -> Context | None:
        """Begin to make it. None: there is no driver, or UCX makes it, which warns where there is one already."""
        if int(os.environ.get("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "0")) or any(
            word.removeprefix("--protocol=").startswith("ucx") for word in command_line
        ):
            return None
        try:
            return cls(ctypes.CDLL("libcuda.so.1"))
        except OSError:
            return None

    async def use(self) -> None:
        """Make it the calling thread's, as dask-cuda does, once it is there."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        if self._context:
            self._driver.cuCtxSetCurrent(self._context)

    def _make(self) -> None:
        device = ctypes.c_int()
        steps = (
            ("cuInit", (0,)),
            ("cuDeviceGet", (ctypes.byref(device), 0)),
            ("cuDevicePrimaryCtxRetain", (ctypes.byref(self._context), device)),
        )
        for name, arguments in steps:
            status = getattr(self._driver, name)(*arguments)
            if status:
                logger.error("Unable to start CUDA Context: %s gives error %d", name, status)
                return


class OneProcess:
    """The worker of a nanny that is not started, as dask-cuda handles nannies: awaited, finished and closed.

    `make_nanny` makes that nanny, and once more where it does not tell what its worker needs: that one is started.
    """

    def __init__(self, make_nanny: Callable[[], Any], context: Context | None) -> None:
        self._make_nanny = make_nanny
        self._nanny = make_nanny()
        self._context = context
        self._running: Any = None
        self._tasks: list[asyncio.Task[None]] = []

    def __await__(self) -> Any:
        return self._start().__await__()

    async def finished(self) -> None:
        """Wait for the worker's end."""
        await self._running.finished()

    async def close(self, timeout: float = 5) -> None:  # noqa: ASYNC109 - as a nanny has it, in seconds
        """Close the worker as its nanny does."""
        if self._running is self._nanny:
            await self._nanny.close(timeout=timeout)
        elif self._running is not None:
            await self._running.close(timeout=timeout * _WORKERS_SHARE, nanny=False, reason="signal")

    async def _start(self) -> OneProcess:
        try:
            told = await told_by(self._nanny)
            given = told["worker_kwargs"]
            changed: dict[str, Any] = {"nanny": None, "dashboard": False, "plugins": with_lazy_cudf(given["plugins"])}
            if self._context is not None:
                changed["preload_argv"] = without(CREATE_CONTEXT, given["preload_argv"])
        except Exception:
            logger.exception("The worker gets a process of its own, and a nanny")
            self._running = self._nanny = self._make_nanny()
            await self._nanny
            return self
        os.environ.update(told["env"])
        dask.config.set(told["config"])
        self._running = told["worker"](**given | changed)
        try:
            await self._running
        except RuntimeError as error:  # that it failed to start; the pod's status has the end of the log alone
            cause = error.__cause__
            if cause is None or isinstance(cause, asyncio.TimeoutError):
                raise
            raise cause from None
        if self._context is not None:
            self._tasks.append(asyncio.create_task(self._context.use()))
        if given.get("dashboard"):
            self._tasks.append(asyncio.create_task(add_dashboard(self._running)))
        return self


async def told_by(nanny: Any) -> dict[str, Any]:
    """What `nanny` would tell the process of its worker, by its own words: `worker_kwargs`, `worker`, `env`, `config`.

    It is of no use afterwards.

    Raises:
        KeyError: it would tell something else.
    """
    told: dict[str, Any] = {}

    class Recorder:
        def __init__(self, **given: Any) -> None:
            told.update(given)

        async def start(self) -> Status:
            return Status.running

    module: Any = nannies
    real, module.WorkerProcess = module.WorkerProcess, Recorder
    nanny._address = "none"  # noqa: SLF001 - it has none before it is started, and would say so
    try:
        await nanny.instantiate()
    finally:
        module.WorkerProcess = real
    return {name: told[name] for name in _TOLD}


async def add_dashboard(worker: Any) -> None:
    """Add the worker's dashboard, a little after its start; without Bokeh there is none."""
    await asyncio.sleep(DASHBOARD_SECONDS)
    name = "distributed.dashboard.worker"
    try:
        pages = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)
    except ImportError:
        return
    pages.connect(worker.http_application, worker.http_server, worker, prefix=worker._http_prefix)  # noqa: SLF001


def without(word: str, words: Any) -> list[str]:
    """`words` without the last that is `word`, which came last."""
    last = max((index for index, found in enumerate(words) if found == word), default=len(words))
    return [*words[:last], *words[last + 1 :]]


def with_lazy_cudf(plugins: Any) -> set[Any]:
    """`plugins`, of which dask-cuda's for cuDF does not import cuDF, whose import reads the same options."""
    theirs = dask_cuda.plugins.CUDFSetup

    class CUDFSetup(dask_cuda.plugins.CUDFSetup):  # type: ignore[misc] # dask-cuda has no types
        def setup(self, worker: Any = None) -> None:
            if "cudf" in sys.modules:
                super().setup(worker)
            else:
                os.environ["CUDF_SPILL"] = "on" if self.spill else "off"
                os.environ["CUDF_SPILL_STATS"] = str(self.spill_stats)

    return {CUDFSetup(item.spill, item.spill_stats) if type(item) is theirs else item for item in plugins}


def in_place_of(nanny_class: Any, context: Context | None) -> Any:
    """What dask-cuda is to call in place of `nanny_class`; for more than one device, that class."""

    def make(*positional: Any, **given: Any) -> Any:
        given["preload"] = [text for text in given.get("preload") or () if MARK not in text]
        if "," in (given.get("env") or {}).get("CUDA_VISIBLE_DEVICES", "unknown, so perhaps several"):
            logger.info("More than one device is visible: each worker gets a process of its own, and a nanny")
            return nanny_class(*positional, **given)
        logger.info("The worker runs in this process, without a nanny")
        return OneProcess(partial(nanny_class, *positional, **given), context)

    return make


def why_not() -> str:
    """Why this cannot take the place of dask-cuda's nannies; empty where it can."""
    wanted = {
        nannies.Nanny: {"env", "config", "preload", "preload_argv", "worker_class"},
        nannies.WorkerProcess: set(_TOLD),
        Worker: {"nanny", "dashboard", "preload_argv", "plugins"},
        dask_cuda.plugins.CUDFSetup: {"spill", "spill_stats"},
    }
    for made, names in wanted.items():
        missing = names - inspect.signature(made).parameters.keys()
        if missing:
            return " ".join([made.__name__, "takes no", *sorted(missing)])
    if dask_cuda.cuda_worker.Nanny is not nannies.Nanny:
        return "dask-cuda has nannies of its own"
    return ""


def install() -> None:
    """Have dask-cuda, whose command line is being parsed, run its worker here."""
    if hasattr(dask_cuda, "_gpudask") or multiprocessing.parent_process() is not None:
        return  # Dask imports a preload twice, and once more in a worker below a nanny
    dask_cuda._gpudask = MARK  # noqa: SLF001 - ours
    reason = why_not()
    if reason:
        logger.warning("The worker gets a process of its own, and a nanny: %s", reason)
    else:
        dask_cuda.cuda_worker.Nanny = in_place_of(nannies.Nanny, Context.begin(sys.argv))
