"""`KubeCluster.run_on_gpu` and `@cluster.on_gpu`: a program's client part on a worker of a GPU pool."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from distributed import Client
from distributed.deploy.cluster import Cluster

from gpudask.kubecluster.errors import KubeClusterTypeError
from gpudask.kubecluster.on_gpu import remote
from gpudask.kubecluster.on_gpu.choice import asked_of
from gpudask.kubecluster.on_gpu.run import Call, Outcome, Runs
from gpudask.kubecluster.resource import Resource
from gpudask.kubecluster.timing import run_or_cancel

F = TypeVar("F", bound=Callable[..., Any])


class ClientPart:
    """What of a program runs next to its data.

    Args:
        resource: the cluster's, whose pools are asked.
        cluster: whose scheduler is.
    """

    def __init__(self, resource: Resource, cluster: Cluster) -> None:
        self._resource, self._cluster = resource, cluster

    def run_on_gpu(self, function: Callable[..., Any], /, *args: Any, pool: str | None = None, **kwargs: Any) -> Any:
        """Run `function(*args, **kwargs)` on a worker of a GPU pool, and return its result.

        The pool starts from zero for it. Inside, `distributed.get_client()` and Dask's collections use the same
        scheduler, and all of the pool's GPUs are free for its tasks. What it prints is printed here. Ctrl-C ends it.
        It runs once: where its worker is lost that is an error.

        Args:
            function: travels by cloudpickle, as tasks do; so do the arguments and what it returns.
            *args: its.
            pool: a GPU pool that offers what no other does; by default the one with the fewest GPUs a pod.
            **kwargs: its.

        Raises:
            KubeClusterError: there is no such pool, the worker was lost, or the result needs a device.
            BaseException: what the function raised.
        """
        return self.call(function, args, kwargs, pool)

    def on_gpu(self, function: Any = None, *, pool: str | None = None) -> Any:
        """Have a function run by `run_on_gpu` wherever it is called: `@cluster.on_gpu`, `@cluster.on_gpu(pool="big")`.

        Not for `with`: what is written in a block cannot run in another process.
        """
        here = OnGpu(self, pool)
        return here if function is None else here(function)

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], pool: str | None
    ) -> Any:
        """`run_on_gpu`, also of a function that has an argument `pool` of its own."""
        call = Call.of(function, args, kwargs)
        resources = asked_of(self._resource.body, pool)
        if self._cluster.asynchronous:
            return self._value(call, resources)
        outcome: Outcome = run_or_cancel(self._cluster.sync, self._run, call, resources)
        return outcome.value()

    async def _value(self, call: Call, resources: Mapping[str, float]) -> Any:
        return (await self._run(call, resources)).value()

    async def _run(self, call: Call, resources: Mapping[str, float]) -> Outcome:
        async with connected(self._cluster) as client:
            return await Runs(client).run(call, resources).outcome()


class OnGpu:
    """The decorator."""

    def __init__(self, part: ClientPart, pool: str | None) -> None:
        self._part, self._pool = part, pool

    def __call__(self, function: F) -> F:
        """Decorate a function."""

        @functools.wraps(function)
        def there(*args: Any, **kwargs: Any) -> Any:
            return self._part.call(function, args, kwargs, self._pool)

        return there  # type: ignore[return-value]

    def __enter__(self) -> NoReturn:
        raise KubeClusterTypeError(
            "with cluster.on_gpu()",
            reason="the lines of a block run in this process, which no library can change",
            next_step="Put them into a function: @cluster.on_gpu above `def`, or cluster.run_on_gpu(function); in a"
            " notebook into a cell that begins with %%gpudask",
        )

    def __exit__(self, *_: object) -> None:
        """Never: nothing enters."""


def connected(cluster: Cluster) -> Client:
    """A client of its own for what runs there, so that closing it leaves nothing; to be awaited, or entered."""
    return Client(cluster, asynchronous=True, set_as_default=False, name="gpudask-on-gpu")


def of_script(path: Path | str, arguments: Sequence[str] = ()) -> Callable[[], int]:
    """A function for `run_on_gpu` that runs the file `path` as `__main__`, and gives the status that it exits with.

    What stands beside the file is not there: `client.upload_file` brings modules. `sys.argv` is the whole process's,
    so two scripts at a time on one worker see each other's.

    Raises:
        OSError: the file cannot be read.
    """
    path = Path(path)
    there = functools.partial(remote.run_script, path.read_text(encoding="utf-8"), str(path), list(arguments))
    functools.update_wrapper(there, remote.run_script)
    there.__name__ = path.name  # type: ignore[attr-defined]
    return there
