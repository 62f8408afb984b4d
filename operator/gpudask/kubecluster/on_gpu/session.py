"""A notebook's session on a GPU worker, from the notebook's side: one namespace there, and cells that run in it."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import contextlib
import pickle
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed.deploy.cluster import Cluster

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.on_gpu import cells
from gpudask.kubecluster.on_gpu.choice import asked_of
from gpudask.kubecluster.on_gpu.client_part import connected
from gpudask.kubecluster.on_gpu.run import Call, Outcome, Runs, by_value
from gpudask.kubecluster.timing import end_task, run_or_cancel


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


def _pickled(name: str, value: Any) -> bytes:
    try:
        return by_value(value)
    except Exception as error:
        raise KubeClusterError(
            f"{name} cannot be sent to the GPU worker",
            reason=f"{type(error).__name__}: {error}",
            next_step="Leave it out of the names after %%gpudask, and make it in the cell",
        ) from error
