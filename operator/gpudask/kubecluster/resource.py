"""The GpuDaskCluster that a program works with: created or found as `create_mode` says, deleted when it was its own.

One that a program made has a lease, without which the operator deletes it (`idle.shutdownAfterDisconnect`). What keeps
that is in the scheduler: Dask's clients send heartbeats, and each of Dask's cluster managers, so `KubeCluster` too,
writes metadata every few seconds. The scheduler's preload counts both, and asks nothing of the API server. Here the
cluster's spec is kept in step with whether the program keeps the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.kubecluster import overrides, pools
from gpudask.kubecluster.deletion import OwnCluster, at_exit, handle_signals, say, uid_of
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError
from gpudask.kubecluster.kube.config import Access, pod_namespace
from gpudask.kubecluster.kube.pods import read_logs
from gpudask.kubecluster.kube.request import CONFLICT, FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import (
    SHUTDOWN,
    cluster_name,
    manifest,
    name_of,
    open_to,
    summary,
    user,
)
from gpudask.kubecluster.timing import Deadline, Timing

if TYPE_CHECKING:
    from gpudask.kubecluster.stock.options import Options

logger = logging.getLogger(__name__)


class CreateMode(Enum):
    """The modes of connecting to an existing cluster or creating one; as in the stock client."""

    CREATE_ONLY = "CREATE_ONLY"
    CREATE_OR_CONNECT = "CREATE_OR_CONNECT"
    CONNECT_ONLY = "CONNECT_ONLY"

    @classmethod
    def of(cls, given: Enum | str) -> CreateMode:
        """The mode that is meant: ours, the stock client's of the same name, or its text.

        Raises:
            KubeClusterError: there is none of that name.
        """
        value = given.value if isinstance(given, Enum) else given
        try:
            return cls(value)
        except ValueError:
            names = [mode.value for mode in cls]
            raise KubeClusterValueError(
                f"create_mode={value!r}",
                reason="there is no such mode",
                next_step=f"Write one of {', '.join(names)}",
            ) from None


class Resource:
    """One GpuDaskCluster: its API server, and what was last read of it.

    Args:
        options: what the program said: which cluster, where, and whether it is created or connected to.
        timing: intervals and deadlines.

    Attributes:
        may_create: whether it is created where there is none.
        namespace: empty until it is known.
        server: None until it was connected to.
        body: the cluster as last read; empty where it never was.
        default_shutdown: how long a cluster that was created here waits for a program, while it is to be deleted at the
            end. Empty: for ever, or somebody said what it is.
        is_new: whether it was created here, just now.
    """

    def __init__(self, options: Options, *, timing: Timing) -> None:
        arguments, shutdown, mode = options.arguments, options.shutdown, options.create_mode
        wanted = options.name or name_of(arguments.custom_cluster_spec) or None
        self.name = cluster_name(wanted, user=user(), nonce=secrets.token_hex(3), environment=os.environ)
        if mode is CreateMode.CREATE_OR_CONNECT and (wanted is None or "{uuid}" in wanted):
            mode = CreateMode.CREATE_ONLY  # a cluster that happens to have the new name is somebody else's
        self.may_create = mode is not CreateMode.CONNECT_ONLY
        is_default = not shutdown.is_asked and not shutdown.is_left_to(arguments.custom_cluster_spec)
        self.default_shutdown = shutdown.after if is_default and self.may_create else ""
        due = shutdown if shutdown.is_asked or (is_default and options.shutdown_on_close is not False) else None
        self._manifest = manifest(self.name, arguments, shutdown=due) if self.may_create else {}
        self._wanted_namespace = options.namespace or self._manifest.get("metadata", {}).get("namespace")
        self.namespace = self._wanted_namespace or ""
        self.server: Server | None = None
        self.body: Json = {}
        self.is_new = False
        self._arguments, self._mode = arguments, mode
        self._kubeconfig, self._context = options.kubeconfig, options.context
        self._shutdown_on_close = options.shutdown_on_close
        self._own: OwnCluster | None = None
        self._timing = timing
        self._is_open = False
        self._process = os.getpid()
        handle_signals()

    def require_server(self) -> Server:
        """The API server.

        Raises:
            KubeClusterError: this object was not started, or works without one.
        """
        if self.server is None:
            raise KubeClusterError(
                f"cluster {self.name!r} is not connected to an API server",
                reason="it was not started, or this pod has no service-account token",
                next_step="Await it first, or give the pod a service account that may get"
                " and patch gpudaskclusters.gpudask.dev",
            )
        return self.server

    @property
    def uid(self) -> str:
        """The uid of the cluster as last read; empty where it never was."""
        return uid_of(self.body)

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process that made this object: it has none of its threads and connections."""
        return self._process != os.getpid()

    def refuse_inherited(self) -> None:
        """Refuse to work in a forked child.

        Raises:
            KubeClusterError: this process is one.
        """
        if self.is_inherited:
            raise KubeClusterError(
                f"cluster {self.name!r} is connected to the process that this one was forked from",
                reason="a forked process has neither its connections nor its threads",
                next_step=f"Connect here, too: KubeCluster.from_name({self.name!r}, namespace={self.namespace!r})",
            )

    def is_same(self, other: Resource) -> bool:
        """True if both are one cluster, of one server and namespace; False for one that was not started."""
        return self._is_open and other._is_open and self._place == other._place

    @property
    def _place(self) -> tuple[str, str, str]:
        # Without a server it is the Service beside this pod.
        return (self.server.session.address if self.server else "", self.namespace, self.name)

    def update(self, body: Json) -> None:
        """Note the cluster as it is now, for the table that people see."""
        self.body = body

    def is_inside(self) -> bool:
        """True if this program is a pod of the same Kubernetes.

        Raises:
            KubeClusterError: as `Access.choice`.
        """
        return Access(self._kubeconfig, self._context).is_inside()

    async def open(self, *, is_inside: bool, log: Callable[[str], None]) -> bool:
        """Connect to the API server, and find or create the cluster there; whether that worked.

        Args:
            is_inside: whether the scheduler is dialled from a pod, which its NetworkPolicy has to let in.
            log: called with what was created, or why the program's arguments do not count.

        Raises:
            KubeClusterError: it exists or does not, and the mode says otherwise; or the server refuses. But not where
                the program is inside and names the namespace of a cluster that exists: the Service has a known name.
        """
        try:
            self.server = await Server.connect(
                self._wanted_namespace, self._kubeconfig, self._context, timing=self._timing
            )
            self.namespace = self.server.namespace
            await self._find(self.server, is_inside=is_inside, log=log)
        except KubeClusterError as error:
            may_be_blind = is_inside and self._wanted_namespace and not self.may_create
            if not may_be_blind or error.status == NOT_FOUND:
                raise
            # A pod without any permission can still work.
            logger.info("going to the scheduler's Service without asking the API server: %s", error)
            self._is_open, self.default_shutdown = True, ""
            return False
        self._is_open = True
        return True

    async def _find(self, server: Server, *, is_inside: bool, log: Callable[[str], None]) -> None:
        wanted = self._manifest or {"metadata": {"name": self.name}}
        program = pod_namespace() if is_inside else ""
        if program and self._manifest and self._arguments.custom_cluster_spec is None:
            wanted = open_to(wanted, program, server.namespace)
        self.body, self.is_new = await self._find_or_create(server, wanted)
        if self._shutdown_on_close is None:
            self._shutdown_on_close = self.is_new
        if self.is_new:
            log(f"created cluster {self.name!r} in namespace {self.namespace!r}: {summary(self.body)}")
        else:
            self.default_shutdown = ""
        if not self.is_new and (given := self._arguments.given()):
            log(f"cluster {self.name!r} exists already: it keeps its own {', '.join(given)}")
        if self._own is None:
            self._own = OwnCluster(server, self.name, uid=self.body["metadata"]["uid"])
            at_exit.follow(self, self._own)
        self._register_deletion()

    async def _find_or_create(self, server: Server, wanted: Json) -> tuple[Json, bool]:
        """The cluster that `wanted` names, and whether it was made just now.

        Raises:
            KubeClusterError: it exists or does not, and the mode says otherwise; or the server refuses.
        """
        if self._mode is CreateMode.CONNECT_ONLY:
            return await server.cluster(self.name), False
        if self._mode is CreateMode.CREATE_OR_CONNECT and (found := await server.find(self.name)) is not None:
            return found, False
        own = OwnCluster(server, self.name)
        if self._shutdown_on_close is not False:
            self._own = own
            at_exit.follow(self, own)
            at_exit.add(own)
        try:
            return await own.create(wanted), True
        except KubeClusterError as error:
            if error.status != CONFLICT or self._mode is CreateMode.CREATE_ONLY:
                raise
        self._own = None
        return await server.cluster(self.name), False  # somebody was faster

    async def suspend(self, *, on: bool) -> None:
        """Give up every pod, or take that back.

        Raises:
            KubeClusterError: the server refuses.
        """
        self.body = await self.require_server().merge(self.name, {"spec": {"suspend": on}})

    async def scale(self, n: int | None, pool: str | None) -> None:
        """Set a pool to `n` pods, or give its size back; the default pool where none is named."""
        server, chosen = self.require_server(), await self._pool(pool)
        self.update(await overrides.set_size(server, self.name, n, chosen, by=user()))
        if n is not None and (hint := overrides.hint_of_size(self.body, chosen, n)):
            logger.warning("gpudask: %s", hint)

    async def adapt(self, minimum: int | None, maximum: int | None, pool: str | None) -> None:
        """Let a pool follow demand between limits; the default pool where none is named."""
        from gpudask.api.pool import MAX_REPLICAS  # noqa: PLC0415 - the models take long to load

        server, chosen = self.require_server(), await self._pool(pool)
        self.update(
            await overrides.set_limits(
                server, self.name, minimum, maximum, chosen, by=user(), without_maximum=MAX_REPLICAS
            )
        )

    async def _pool(self, pool: str | None) -> str:
        if pool in self._named:
            return str(pool)
        return pools.pool_of_word(await self.require_server().cluster(self.name), pool)

    @property
    def _named(self) -> list[str]:
        """The pools as last read: asking for one of them needs no look first."""
        return overrides.pool_names(self.body) if self.body.get("spec") else []

    async def read_logs(
        self, scheduler: bool, workers: bool, pool: str, tail: int | None, *, is_needed: bool
    ) -> dict[str, str] | None:
        """The logs of the pods by pod name; None where they cannot be read, unless that is an error.

        Raises:
            KubeClusterError: there is no such pool; or the API server refuses, and `is_needed`, or for another reason
                than rights.
        """
        scheduler = scheduler and not pool
        try:
            server = self.require_server()
            if pool:
                pool = pools.pool_of_word(await server.cluster(self.name), pool)
            return await read_logs(
                server, self.name, self.uid, scheduler=scheduler, workers=workers, pool=pool, tail=tail
            )
        except KubeClusterError as error:
            is_unread = self.server is None or error.status == FORBIDDEN or error.may_pass
            if is_needed or not is_unread:
                raise
            return None

    async def add_pool(self, pool: Json) -> None:
        """Add a pool."""
        self.update(await pools.add_pool(self.require_server(), self.name, pool))

    async def remove_pool(self, pool: str) -> None:
        """Remove a pool, with the size that this client set."""
        self.update(await pools.remove_pool(self.require_server(), self.name, pool))

    @property
    def shutdown_on_close(self) -> bool:
        """True if it is deleted at the end. It may be set later."""
        return bool(self._shutdown_on_close)

    @shutdown_on_close.setter
    def shutdown_on_close(self, value: bool) -> None:
        self._shutdown_on_close = value
        self._register_deletion()

    def _register_deletion(self) -> None:
        """Note for Python's end whether the cluster goes then."""
        if self._own is not None:
            (at_exit.add if self._shutdown_on_close else at_exit.discard)(self._own)

    async def close(self, gone_within_seconds: float | None = None) -> None:
        """Delete it, where it is to be deleted at the end, and close the connections.

        Args:
            gone_within_seconds: to wait until it and its pods are gone; None: that is not waited for.

        Raises:
            KubeClusterTimeoutError: it is not gone in time; only where that is waited for.
        """
        own, self._own = self._own, None
        try:
            if own is not None and own in at_exit:
                await self._delete(own, gone_within_seconds)
        finally:
            if self.server is not None:
                await self.server.session.close()

    async def _delete(self, own: OwnCluster, gone_within_seconds: float | None) -> None:
        timing, loop = self._timing, asyncio.get_running_loop()
        limit_seconds = timing.exit_seconds if gone_within_seconds is None else gone_within_seconds
        deadline = Deadline(limit_seconds, timing)
        notice = loop.call_later(
            timing.notice_seconds, say, f"waiting up to {limit_seconds:g} s until the API server has deleted {own}"
        )
        try:
            await own.delete(limit_seconds)
            if gone_within_seconds is not None:
                await own.wait_until_gone(deadline)
        except KubeClusterError as error:
            if gone_within_seconds is not None:
                raise
            # Not raised: it would hide why a start failed.
            logger.warning("gpudask: %s; it is tried again when this program ends", error)
        finally:
            notice.cancel()


class Lease:
    """The field of one cluster's spec: there as long as the program is to delete the cluster."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._settling = asyncio.Lock()
        self._uid = ""
        self._is_leased: bool | None = None  # whether the spec has what this program put there; None: it put nothing

    async def start(self) -> None:
        """Note what the spec has, of the cluster that is connected, and bring it in step."""
        if self._resource.default_shutdown:
            self._is_leased = SHUTDOWN in (self._resource.body["spec"].get("idle") or {})
            self._uid = self._resource.body["metadata"]["uid"]
        await self.settle()

    async def settle(self) -> None:
        """Write to the spec what follows from `shutdown_on_close`, where that has changed: what is kept has no lease.

        Only where this program made the cluster, and nobody said otherwise.
        """
        async with self._settling:
            is_wanted, after = self._resource.shutdown_on_close, self._resource.default_shutdown
            if self._is_leased is None or self._is_leased == is_wanted:
                return
            metadata = {"uid": self._uid}  # of no other cluster of this name
            patch = {"metadata": metadata, "spec": {"idle": {SHUTDOWN: after if is_wanted else None}}}
            try:
                self._resource.update(await self._resource.require_server().merge(self._resource.name, patch))
            except KubeClusterError as error:
                end = "may outlive this program" if is_wanted else f"goes {after} after this program"
                logger.warning("gpudask: cluster %s %s: %s", self._resource.name, end, error)
            else:
                self._is_leased = is_wanted
