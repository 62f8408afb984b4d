"""The keeper of all records: it notes the end of clusters that ended unseen, and removes what is old or too many."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from gpudask.api.resource import Identity
from gpudask.api.status import iso
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import Backoff
from gpudask.clients.kubernetes import Kubernetes
from gpudask.history.record import Notes, ended_unseen
from gpudask.history.retention import Kept, Sweep, parse, sweep
from gpudask.reconcile.records.store import Records, Subject, wait_for_turn

_LOG = logging.getLogger(__name__)


class RecordKeeper:
    """Sweeps over the records while this operator leads.

    `knows(cluster)`: whether a cluster is there for sure. `knows_more(cluster)`: whether there is more to tell of
    one that is gone, and of its pods, than its record may have; if so `close_anew(cluster, keep_seconds)` writes it.
    `interval_seconds`: between two sweeps; `soon_seconds`: after news of a namespace.
    """

    def __init__(
        self,
        api: Kubernetes,
        records: Records,
        knows: Callable[[Identity], bool],
        leads: Callable[[], bool],
        namespaces: tuple[str, ...],
        *,
        knows_more: Callable[[Identity], bool] = lambda _: False,
        close_anew: Callable[[Identity, float], None] = lambda *_: None,
        interval_seconds: float = 600.0,
        soon_seconds: float = 10.0,
    ) -> None:
        self._api = api
        self._records = records
        self._knows = knows
        self._leads = leads
        self._namespaces = namespaces or ("",)
        self._knows_more = knows_more
        self._close_anew = close_anew
        self._interval_seconds = interval_seconds
        self._soon_seconds = soon_seconds
        self._news: set[str] = set()  # namespaces in which a record was made, or ended
        self._backoff = Backoff(soon_seconds, interval_seconds)
        self._failures: Counter[str] = Counter()  # sweeps in a row of a namespace in which a request failed
        self._missed: set[str] = set()  # namespaces whose records could not be had, the last time
        self._wake = asyncio.Event()
        records.on_write = self._note

    async def run(self) -> None:
        """Sweep over all at the start and then at intervals, however much news there is, and over what has news soon.

        It never returns.
        """
        now = asyncio.get_running_loop().time
        all_at = now() + self._soon_seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(all_at):
                    await self._wake.wait()
            if self._wake.is_set():
                await asyncio.sleep(self._soon_seconds)
            self._wake.clear()
            if not self._leads():
                all_at = now() + self._soon_seconds
                continue
            news, self._news = self._news, set()
            if now() >= all_at:
                all_at, news = now() + self._interval_seconds, set(self._namespaces)
            for namespace in sorted(news):
                all_at = min(all_at, now() + await self.sweep(namespace))

    async def sweep(self, namespace: str) -> float:
        """Sweep over the records of `namespace`, of all where it is empty; in how many seconds again."""
        try:
            found = [kept async for body in self._api.records(namespace) if (kept := parse(body)) is not None]
        except ApiError as error:
            if error.not_found or error.forbidden:
                self._records.set_off(namespace, error)
                self._look_again(namespace)
            else:
                _LOG.warning("the records of clusters: %s", error)
                return self._failed(namespace)
            return self._interval_seconds
        self._missed.discard(namespace)
        self._records.set_on(namespace)
        settings = self._records.settings
        plan = sweep(
            found,
            now=self._records.now(),
            keep_seconds=settings.keep_seconds,
            per_namespace=settings.per_namespace,
        )
        if not await self._carry_out(plan):
            return self._failed(namespace)
        del self._failures[namespace]
        if plan.requeue_after is None:
            return self._interval_seconds
        return max(self._soon_seconds, plan.requeue_after)

    def _failed(self, namespace: str) -> float:
        """Count a sweep that did not do all; in how many seconds it is tried again."""
        self._failures[namespace] += 1
        return self._backoff.delay(self._failures[namespace])

    def _look_again(self, namespace: str) -> None:
        """Sweep once more, soon: an API server that starts knows neither definitions nor rights, and says so of all."""
        if namespace not in self._missed:
            self._missed.add(namespace)
            self._note(namespace)

    def _note(self, namespace: str) -> None:
        self._news.add(namespace)
        self._wake.set()

    async def _carry_out(self, plan: Sweep) -> bool:
        """Do what a sweep found, each on its own; whether all of it was done."""
        is_done = True
        for kept in plan.expired:
            is_done &= await self._remove(kept)
        for kept in plan.unended:
            assert kept.cluster is not None, "of others nobody can tell"
            if not self._knows(kept.cluster):
                is_done &= await self._complete(kept, kept.cluster)
        for kept in plan.recent:
            assert kept.cluster is not None, "of others nobody can tell"
            is_done &= await self._finish(kept, kept.cluster)
        return is_done

    async def _remove(self, kept: Kept) -> bool:
        """Remove a record; whether it is gone, or another one by now."""
        await wait_for_turn(self._records.limiter, kept.namespace)
        try:
            await self._api.delete_record(kept.namespace, kept.name, uid=kept.uid, version=kept.version)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                _LOG.warning("record %s/%s: %s", kept.namespace, kept.name, error)
                return False
        else:
            _LOG.info("record %s/%s: removed", kept.namespace, kept.name)
        return True

    async def _complete(self, kept: Kept, cluster: Identity) -> bool:
        """Note the end of a cluster that is gone, which nobody saw; where it is there after all, nothing.

        Whether no request failed.

        Who saw its pods tells of them what has come since the record was written, so nothing is written before that.
        """
        await wait_for_turn(self._records.limiter, kept.namespace)
        try:
            if await self._exists(cluster):
                return True
            if self._knows_more(cluster):
                self._close_anew(cluster, self._keep_seconds(kept))
                return True
            ended = iso(self._records.now(), to="seconds")
            notes = Notes(ended=ended, events=[ended_unseen(ended)])
            await self._records.go_on(Subject(cluster, "", self._keep_seconds(kept)), notes, only_existing=True)
        except ApiError as error:
            _LOG.info("record %s/%s: %s", kept.namespace, kept.name, error)
            return False
        return True

    async def _finish(self, kept: Kept, cluster: Identity) -> bool:
        """Have written what pods that outlived their cluster came to, where an operator ended while it wrote that.

        Whether no request failed.
        """
        if self._knows(cluster) or not self._knows_more(cluster):
            return True
        try:
            if not await self._exists(cluster):
                self._close_anew(cluster, self._keep_seconds(kept))
        except ApiError as error:
            _LOG.info("record %s/%s: %s", kept.namespace, kept.name, error)
            return False
        return True

    def _keep_seconds(self, kept: Kept) -> float:
        longest = self._records.settings.keep_seconds
        return longest if kept.keep_seconds is None else kept.keep_seconds

    async def _exists(self, cluster: Identity) -> bool:
        """Whether this very cluster is there.

        Raises:
            ApiError: nobody can tell.
        """
        try:
            body = await self._api.get_cluster(cluster.namespace, cluster.name)
        except ApiError as error:
            if error.object_not_found:
                return False
            raise
        return bool(body["metadata"]["uid"] == cluster.uid)
