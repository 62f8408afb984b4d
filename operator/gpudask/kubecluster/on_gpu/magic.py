"""The notebook's `%%gpudask`: `%load_ext gpudask`, and a cell that begins with it runs on a worker of a GPU pool.

The notebook's cells share one namespace there, its `Session`, which is seen from the notebook's side here.

Only a notebook loads this module: IPython is no dependency.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import argparse
import asyncio
import contextlib
import linecache
import pickle
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from distributed.deploy.cluster import Cluster

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError
from gpudask.kubecluster.on_gpu import cells
from gpudask.kubecluster.on_gpu.choice import asked_of
from gpudask.kubecluster.on_gpu.client_part import connected
from gpudask.kubecluster.on_gpu.run import Call, Outcome, Runs, by_value, raise_remote
from gpudask.kubecluster.timing import end_task, limit_of, run_or_cancel

if TYPE_CHECKING:
    from gpudask.kubecluster.cluster import KubeCluster

_IDLE = "1h"
_SHOWN = 20  # names


class Magic:
    """The magic of one notebook, with its session once a cell has run.

    Args:
        shell: IPython's.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._asked: tuple[Any, ...] = ()
        self._own: KubeCluster | None = None  # connected to by its name, here

    def __call__(self, line: str, cell: str | None = None) -> None:
        """`%%gpudask [--cluster NAME] [--pool NAME] [--idle 1h] [NAME ...]` over a cell; `%gpudask [--release]` alone.

        The cell runs on a worker of a GPU pool, where `distributed.get_client()` and collections use the cluster. NAMEs
        are sent there first. What the cell assigns comes back, unless it needs a device: that stays there for the next
        cell. `%gpudask` says what stays, `%gpudask --release` frees it.
        """
        options = _parsed(line)
        if cell is None:
            self._tell(is_over=options.release)
            return
        session = self._session_for(options)
        missing = [name for name in options.names if name not in self._shell.user_ns]
        if missing:
            raise KubeClusterValueError(
                f"%%gpudask {' '.join(missing)}",
                reason="this notebook has no such name",
                next_step="Write names of the notebook that the cell is to have",
            )
        self._show(session.run(cell, {name: self._shell.user_ns[name] for name in options.names}), cell)

    def close(self) -> None:
        """Free what the worker keeps."""
        session, self._session, self._asked = self._session, None, ()
        own, self._own = self._own, None
        try:
            if session is not None:
                session.close()
        finally:
            if own is not None:
                own.close()

    def _session_for(self, options: argparse.Namespace) -> Session:
        asked = (options.cluster, options.pool)
        if self._session is not None and asked in ((None, None), self._asked):
            return self._session
        self.close()
        cluster = self._cluster(options.cluster)
        if cluster.asynchronous:
            raise KubeClusterValueError(
                "%%gpudask",
                reason=f"cluster {cluster.name} is asynchronous, which a cell cannot wait for",
                next_step="Make it without asynchronous=True",
            )
        idle_seconds = limit_of(options.idle) or 0.0
        body = cluster._resource.body  # noqa: SLF001 - as the class's own parts have it
        self._session = Session(cluster, body, pool=options.pool, idle_seconds=idle_seconds)
        self._asked = asked
        return self._session

    def _cluster(self, name: str | None) -> KubeCluster:
        """The cluster of that name, or variable; without one the only cluster of the notebook."""
        from distributed.core import Status  # noqa: PLC0415 - they take long to load

        from gpudask.kubecluster.cluster import KubeCluster  # noqa: PLC0415

        found = {
            id(value): value
            for key, value in self._shell.user_ns.items()
            if isinstance(value, KubeCluster) and value.status == Status.running and name in (None, key, value.name)
        }
        if len(found) == 1:
            return next(iter(found.values()))
        if name is None:
            raise KubeClusterValueError(
                "%%gpudask",
                reason=f"this notebook has {len(found) or 'no'} clusters",
                next_step="Write %%gpudask --cluster NAME, or cluster = KubeCluster.from_name(NAME) before",
            )
        self._own = KubeCluster.from_name(name)
        return self._own

    def _show(self, outcome: CellOutcome, cell: str) -> None:
        assert self._session is not None
        self._shell.push(dict(outcome.values))
        for name in outcome.kept:
            self._shell.user_ns.pop(name, None)  # an older value would be taken for the cell's
        if outcome.kept:
            print(f"on worker {self._session.worker}: {_reasons(outcome.kept)}")  # noqa: T201 - what a cell shows
        if outcome.failure:
            filename = self._session.filename
            linecache.cache[filename] = (len(cell), None, cell.splitlines(keepends=True), filename)
            raise_remote("the cell", outcome.failure)
        if outcome.shown:
            from IPython.display import display  # noqa: PLC0415 - see the module's docstring

            display(dict(outcome.shown), raw=True)

    def _tell(self, *, is_over: bool) -> None:
        if self._session is None or not self._session.worker:
            print("%%gpudask: nothing is on a worker")  # noqa: T201
        elif is_over:
            print(f"worker {self._session.worker} is free of this notebook")  # noqa: T201
            self.close()
        else:
            kept = _reasons(self._session.kept) or "no name that only it has"
            print(f"on worker {self._session.worker}: {kept}. %gpudask --release frees it")  # noqa: T201


class Session:
    """The namespace of a notebook on one worker, which it keeps until `close`, or until no cell ran for long.

    Args:
        cluster: whose worker.
        body: the cluster's resource.
        pool: of that pool; None: any with GPUs.
        idle_seconds: without a cell, after which the namespace and its hold on the pod end.

    Attributes:
        kept: the names that only the worker has, and why.
        worker: its name; empty while there is none.
    """

    def __init__(self, cluster: Cluster, body: Json, *, pool: str | None, idle_seconds: float) -> None:
        self.cluster = cluster
        self.kept: dict[str, str] = {}
        self.worker = ""
        self._resources = asked_of(body, pool)
        self._idle_seconds = idle_seconds
        self._id = secrets.token_hex(8)
        self._runs: Runs | None = None
        self._holding: asyncio.Task[Outcome] | None = None
        self._address = ""
        self._cells = 0

    @property
    def filename(self) -> str:
        """The last cell's name in tracebacks."""
        return f"<%%gpudask cell {self._cells}>"

    def run(self, source: str, sent: Mapping[str, Any]) -> CellOutcome:
        """Run a cell, with these names given to the namespace before.

        Raises:
            KubeClusterError: a name cannot be sent, or the worker was lost, and with it the namespace.
        """
        self._cells += 1
        data = {name: _pickled(name, value) for name, value in sent.items()}
        call = Call.of(cells.run_cell, (self._id, source, self.filename, data))
        answer = run_or_cancel(self.cluster.sync, self._run, call).value()
        if answer.get("lost"):
            raise self.cluster.sync(self._lost, "its worker has ended them")
        found = CellOutcome.of(answer)
        for name in found.values:
            self.kept.pop(name, None)
        self.kept.update(found.kept)
        return found

    def close(self) -> None:
        """Free the namespace, and what it holds on the worker."""
        self.cluster.sync(self._close)

    async def _run(self, call: Call) -> Outcome:
        await self._hold()
        assert self._runs is not None
        try:
            return await self._runs.run(call, self._resources, [self._address]).outcome()
        except KubeClusterError as error:
            if not await self._is_held():
                raise await self._lost(error.reason) from error
            raise

    async def _is_held(self) -> bool:
        """True if the namespace is there, as far as anybody can tell."""
        if self._holding is None or self._holding.done():
            return False
        assert self._runs is not None
        with contextlib.suppress(OSError):
            scheduler: Any = self._runs.client.scheduler
            return bool(await scheduler.ncores(workers=[self._address]))
        return True

    async def _hold(self) -> None:
        """Have a namespace, from zero too.

        Raises:
            KubeClusterError: there was one, and it is gone: once, then the next cell gets a new one.
        """
        if self._holding is not None:
            if not self._holding.done():
                return
            ended = self._holding
            error = None if ended.cancelled() else ended.exception()
            raise await self._lost(str(error) if error else f"no cell ran there for {self._idle_seconds:g} s")
        self._runs = Runs(await connected(self.cluster))
        run = self._runs.run(Call.of(cells.hold_namespace, (self._id, self._idle_seconds)), self._resources)
        self._holding = asyncio.create_task(run.outcome())
        began = asyncio.create_task(run.began.wait())
        try:
            await asyncio.wait([began, self._holding], return_when=asyncio.FIRST_COMPLETED)
            if not began.done():
                self._holding.result().value()
        except BaseException:
            await self._close()
            raise
        finally:
            began.cancel()
        self._address, self.worker = run.address, run.worker

    async def _lost(self, why: str) -> KubeClusterError:
        names, worker = ", ".join(self.kept) or "none that only it had", self.worker
        self.kept.clear()
        await self._close()
        return KubeClusterError(
            f"the names of this notebook on worker {worker} are gone ({names})",
            reason=why,
            next_step="Run the cells again that made them: the next %%gpudask begins anew",
        )

    async def _close(self) -> None:
        holding, runs = self._holding, self._runs
        self._holding = self._runs = None
        self.worker, self._address = "", ""
        await end_task(holding)
        if runs is not None:
            await runs.client.close()


@dataclass(frozen=True)
class CellOutcome:
    """What one cell gave.

    Attributes:
        values: of the names that came back.
        kept: why the other names stay on the worker.
        shown: its last expression, by MIME type.
        failure: its error, as `raise_remote` takes it; empty where it has none.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    failure: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> CellOutcome:
        """Take in what came: what cannot be unpickled here stays there."""
        values, kept = {}, dict(answer.get("kept", {}))
        for name, data in answer.get("back", {}).items():
            try:
                values[name] = pickle.loads(data)  # noqa: S301 - as Dask's results
            except Exception as error:  # noqa: BLE001 - whatever a foreign type raises
                kept[name] = f"it cannot be read here: {type(error).__name__}: {error}"[:200]
        return cls(values, kept, answer.get("shown", {}), answer.get("failure", {}))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise, where a command line would end the program."""
        raise KubeClusterValueError(
            "%%gpudask",
            reason=message,
            next_step="Write %%gpudask [--cluster NAME] [--pool NAME] [--idle 1h] [NAME ...]",
        )


def _parsed(line: str) -> argparse.Namespace:
    parser = _Parser("%%gpudask", add_help=False)
    parser.add_argument("--cluster")
    parser.add_argument("--pool")
    parser.add_argument("--idle", default=_IDLE)
    parser.add_argument("--release", action="store_true")
    parser.add_argument("names", nargs="*")
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        parser.error(str(error))
    return parser.parse_args(words)


def _pickled(name: str, value: Any) -> bytes:
    try:
        return by_value(value)
    except Exception as error:
        raise KubeClusterError(
            f"{name} cannot be sent to the GPU worker",
            reason=f"{type(error).__name__}: {error}",
            next_step="Leave it out of the names after %%gpudask, and make it in the cell",
        ) from error


def _reasons(kept: Any) -> str:
    few = list(kept.items())[:_SHOWN]
    more = f"; and {len(kept) - len(few)} more" if len(kept) > len(few) else ""
    return "; ".join(f"{name} ({why})" for name, why in few) + more


_loaded: dict[int, Magic] = {}  # by shell: IPython unloads an extension by its module


def load(shell: Any) -> None:
    """Register the magic with a shell."""
    magic = _loaded[id(shell)] = Magic(shell)
    shell.register_magic_function(magic, magic_kind="line_cell", magic_name="gpudask")


def unload(shell: Any) -> None:
    """Take it back, and free what its worker keeps."""
    magic = _loaded.pop(id(shell), None)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("gpudask", None)
    if magic is not None:
        magic.close()
