"""The notebook's `%%gpudask`: `%load_ext gpudask`, and a cell that begins with it runs on a worker of a GPU pool.

Only a notebook loads this module: IPython is no dependency.
"""

from __future__ import annotations

import argparse
import linecache
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from gpudask.kubecluster.errors import KubeClusterValueError
from gpudask.kubecluster.on_gpu.run import raise_remote
from gpudask.kubecluster.on_gpu.session import CellOutcome, Session
from gpudask.kubecluster.timing import limit_of

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

            display(dict(outcome.shown), raw=True)  # type: ignore[no-untyped-call]

    def _tell(self, *, is_over: bool) -> None:
        if self._session is None or not self._session.worker:
            print("%%gpudask: nothing is on a worker")  # noqa: T201
        elif is_over:
            print(f"worker {self._session.worker} is free of this notebook")  # noqa: T201
            self.close()
        else:
            kept = _reasons(self._session.kept) or "no name that only it has"
            print(f"on worker {self._session.worker}: {kept}. %gpudask --release frees it")  # noqa: T201


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
