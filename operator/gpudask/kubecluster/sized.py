"""A cluster manager's pools: sized, held, added and removed; and all of them given up and resumed."""

# mypy: disallow-untyped-calls=False, disallow-any-generics=False
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpudask.api.stock import DEFAULT_GROUP
from gpudask.kubecluster import overrides, stock
from gpudask.kubecluster.holding import Hold
from gpudask.kubecluster.pools import add_pool, pool_of_words, remove_pool
from gpudask.kubecluster.sizes import set_limits, set_size
from gpudask.kubecluster.timing import Deadline
from gpudask.kubecluster.waiting import WaitingCluster


class SizedCluster(WaitingCluster):
    """What `KubeCluster` does to pools. Sizes are overrides under a field manager of their own: Git keeps its own."""

    def scale(self, n: int | None, pool: str | None = None, *, worker_group: str | None = None) -> Any:
        """Set a pool to `n` pods until `unscale`; `None` gives the size back to its manifest.

        Args:
            n: pods, not workers: a pod with 4 GPUs holds 4 workers.
            pool: the pool's name; may be left out where there is only one.
            worker_group: the stock client's word for `pool`; its `default` is the pool of that name, else the first
                one without GPUs.

        Raises:
            KubeClusterError: no such pool, several pools and none named, or the API server refuses.
        """
        return self.sync(self._scale, n, stock.one_of(pool, worker_group), is_group=worker_group is not None)

    def unscale(self, pool: str | None = None) -> Any:
        """Remove what `scale` or `adapt` set, so that the manifest's replicas or autoscale hold again."""
        return self.sync(self._scale, None, pool)

    async def _scale(self, n: int | None, pool: str | None, *, is_group: bool = False) -> None:
        if is_group and pool == DEFAULT_GROUP:
            pool = stock.default_pool(await self.require_server().cluster(self.name))
        self._body = await set_size(self.require_server(), self.name, n, pool)

    def adapt(  # type: ignore[override]  # Dask's takes a class of its own
        self, minimum: int | None = None, maximum: int | None = None, pool: str | None = None
    ) -> Any:
        """Let a pool follow demand between these limits until `unscale`, whatever its manifest says.

        Not Dask's own Adaptive, which is blind to GPUs: the operator does it, and goes on when this program ends.

        Args:
            minimum: pods that stay without demand; the manifest's, or 0, where it is left out.
            maximum: pods at most; the manifest's where it is left out.
            pool: the pool's name; may be left out where there is only one.

        Raises:
            KubeClusterError: as `scale`, or there is no maximum anywhere.
        """
        return self.sync(self._adapt, minimum, maximum, pool)

    async def _adapt(self, minimum: int | None, maximum: int | None, pool: str | None) -> None:
        self._body = await set_limits(self.require_server(), self.name, minimum, maximum, pool)

    def hold(self, pool: str, n: int, *, timeout: float | str | None = 600) -> Hold:
        """A fixed set of workers for a while, for XGBoost, PyTorch or cuML; `async with` in an asynchronous program.

        ```python
        with cluster.hold("gpu", 4) as workers:
            train(client, workers=workers)
        ```

        Sets the pool to `n` pods, waits until exactly their workers run, and gives the size back at the end, also
        after an error. `workers` are their addresses. Of several holds of one pool, the newest counts, until it ends.

        Args:
            pool: the pool's name.
            n: pods.
            timeout: seconds, or a duration such as `10m`, to wait for them; None: for ever.

        Raises:
            KubeClusterError: on entering: they did not come, or others set this pool's size too.
        """
        return Hold(self, pool, n, timeout, self._timing)

    def show(self, body: dict[str, Any]) -> None:
        """Note the cluster as it is now, for the table that people see."""
        self._body = body

    def add_pool(self, name: str, *, n_workers: Any = None, gpus: Any = None, **fields: Any) -> Any:
        """Add a pool to the running cluster.

        Args:
            name: 1 to 15 lower-case letters and digits, a letter first.
            n_workers: pods of a CPU pool: a number, or the least and the most.
            gpus: pods of one GPU each: the most, or the least and the most.
            **fields: as in a manifest's pool: `resources={"memory": "64Gi"}`, `template={...}`.

        Raises:
            KubeClusterError: there is one of that name, it is not valid, or the API server refuses.
        """
        return self.sync(self._add_pool, pool_of_words(name, n_workers, gpus, fields))

    async def _add_pool(self, pool: dict[str, Any]) -> None:
        self._body = await add_pool(self.require_server(), self.name, pool)

    def remove_pool(self, name: str) -> Any:
        """Remove a pool; its pods finish what they run, and hand over their results first.

        Raises:
            KubeClusterError: there is no such pool, it is the last one, or the API server refuses.
        """
        return self.sync(self._remove_pool, name)

    def add_worker_group(  # noqa: PLR0917 - the stock client's order
        self,
        name: str,
        n_workers: int = 3,
        image: str | None = None,
        resources: Mapping[str, Any] | None = None,
        worker_command: str | Sequence[str] | None = None,
        env: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        custom_spec: Any = None,
    ) -> Any:
        """`add_pool` in the stock client's words; `custom_spec` is refused: a pool has a template.

        Raises:
            KubeClusterError: as `add_pool`, or a word cannot be used: the message says what to write.
        """
        pool = stock.pool_of_group(
            name,
            n_workers=n_workers,
            image=image,
            resources=resources,
            worker_command=worker_command,
            env=env,
            custom_spec=custom_spec,
        )
        return self.sync(self._add_pool, pool)

    def delete_worker_group(self, name: str) -> Any:
        """`remove_pool` in the stock client's words."""
        return self.remove_pool(name)

    async def _remove_pool(self, name: str) -> None:
        server = self.require_server()
        body = await server.cluster(self.name)
        if overrides.entry_of(body, name) is not None and not overrides.other_owners(body, name):
            await set_size(server, self.name, None, name)
        self._body = await remove_pool(server, self.name, name)

    # ------------------------------------------------------------------ all pools at once

    def suspend(self) -> Any:
        """Give up every pod once its tasks end, the scheduler last, and keep the resource; `resume` undoes it."""
        return self.sync(self._suspend, on=True)

    def resume(self, timeout: float | str | None = None) -> Any:
        """Undo `suspend`, and wait until the scheduler is ready. Clients of before are to be made anew.

        Args:
            timeout: seconds, or a duration such as `10m`; by default the class's.

        Raises:
            KubeClusterError: it is not ready in time.
        """
        return self.sync(self._resume, timeout)

    async def _suspend(self, *, on: bool) -> None:
        self._body = await self.require_server().merge(self.name, {"spec": {"suspend": on}})

    async def _resume(self, limit_seconds: float | str | None) -> None:
        await self._suspend(on=False)
        limit_seconds = self._timeout_seconds if limit_seconds is None else limit_seconds
        deadline = Deadline(limit_seconds, self._timing)
        generation = self._body["metadata"].get("generation", 0)
        await self._wait_for_scheduler(
            self.require_server(), deadline, is_inside=not self._forwards, generation=generation
        )
