"""The GpuDaskCluster that a program works with: created or found as `create_mode` says, deleted when it was its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from enum import Enum

import dask.config

from gpudask.api import Json
from gpudask.api.resource import DEFAULT_GROUP
from gpudask.kubecluster import overrides, pools
from gpudask.kubecluster.deletion import OwnCluster, at_exit, handle_signals, say
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube.config import Access, pod_namespace
from gpudask.kubecluster.kube.request import CONFLICT, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import (
    DEFAULT_IMAGE,
    Arguments,
    cluster_name,
    manifest,
    name_of,
    open_to,
    summary,
    user,
)
from gpudask.kubecluster.timing import Timing

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
            raise KubeClusterError(
                f"create_mode={value!r}",
                reason="there is no such mode",
                next_step=f"Write one of {', '.join(names)}",
            ) from None


class Resource:
    """One GpuDaskCluster: its API server, and what was last read of it.

    Args:
        name: the cluster's, with `{user}` and `{uuid}` to be filled in; without it the manifest's, or a new one.
        arguments: what the program said of it.
        mode: whether it is created or connected to.
        namespace: where; the kubeconfig's or the pod's own where it is None.
        kubeconfig: a path, instead of KUBECONFIG.
        context: a context of the kubeconfig.
        shutdown_on_close: delete it at the end; None: where it was created here.
        timing: intervals and deadlines.

    Attributes:
        may_create: whether it is created where there is none.
        namespace: empty until it is known.
        server: None until it was connected to.
        body: the cluster as last read; empty where it never was.
    """

    def __init__(
        self,
        name: str | None,
        arguments: Arguments,
        mode: CreateMode,
        *,
        namespace: str | None,
        kubeconfig: str | None,
        context: str | None,
        shutdown_on_close: bool | None,
        timing: Timing,
    ) -> None:
        wanted = name or name_of(arguments.custom_cluster_spec) or None
        self.name = cluster_name(wanted, user=user(), nonce=secrets.token_hex(3))
        if mode is CreateMode.CREATE_OR_CONNECT and (wanted is None or "{uuid}" in wanted):
            mode = CreateMode.CREATE_ONLY  # a cluster that happens to have the new name is somebody else's
        self.may_create = mode is not CreateMode.CONNECT_ONLY
        image = str(dask.config.get("gpudask.image", None) or DEFAULT_IMAGE)
        self._manifest = manifest(self.name, arguments, default_image=image) if self.may_create else {}
        self._wanted_namespace = namespace or self._manifest.get("metadata", {}).get("namespace")
        self.namespace = self._wanted_namespace or ""
        self.server: Server | None = None
        self.body: Json = {}
        self._arguments, self._mode = arguments, mode
        self._kubeconfig, self._context = kubeconfig, context
        self._shutdown_on_close = shutdown_on_close
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
            self._is_open = True
            return False
        self._is_open = True
        return True

    async def _find(self, server: Server, *, is_inside: bool, log: Callable[[str], None]) -> None:
        wanted = self._manifest or {"metadata": {"name": self.name}}
        program = pod_namespace() if is_inside else ""
        if program and self._manifest and self._arguments.custom_cluster_spec is None:
            wanted = open_to(wanted, program, server.namespace)
        self.body, is_new = await self._find_or_create(server, wanted)
        if self._shutdown_on_close is None:
            self._shutdown_on_close = is_new
        if is_new:
            log(f"created cluster {self.name!r} in namespace {self.namespace!r}: {summary(self.body)}")
        elif given := self._arguments.given():
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

    async def scale(self, n: int | None, pool: str | None, *, is_group: bool = False) -> None:
        """Set a pool to `n` pods, or give its size back; `is_group`: it is named as the stock client does."""
        server, name = self.require_server(), self.name
        if is_group and pool == DEFAULT_GROUP:
            pool = pools.default_pool(await server.cluster(name))
        self.update(await overrides.set_size(server, name, n, pool, by=user()))

    async def adapt(self, minimum: int | None, maximum: int | None, pool: str | None) -> None:
        """Let a pool follow demand between limits."""
        self.update(await overrides.set_limits(self.require_server(), self.name, minimum, maximum, pool, by=user()))

    async def add_pool(self, pool: Json) -> None:
        """Add a pool."""
        self.update(await pools.add_pool(self.require_server(), self.name, pool))

    async def remove_pool(self, pool: str) -> None:
        """Remove a pool, with the size that this client set."""
        server, name = self.require_server(), self.name
        body = await server.cluster(name)
        if overrides.entry_of(body, pool) is not None and not overrides.other_owners(body, pool):
            await overrides.set_size(server, name, None, pool, by=user())
        self.update(await pools.remove_pool(server, name, pool))

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
            KubeClusterError: it is not gone in time; only where that is waited for.
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
        end = timing.clock.monotonic() + limit_seconds
        notice = loop.call_later(
            timing.notice_seconds, say, f"waiting up to {limit_seconds:g} s until the API server has deleted {own}"
        )
        try:
            await own.delete(limit_seconds)
            if gone_within_seconds is not None:
                await own.wait_until_gone(end - timing.clock.monotonic())
        except KubeClusterError as error:
            if gone_within_seconds is not None:
                raise
            # Not raised: it would hide why a start failed.
            logger.warning("gpudask: %s; it is tried again when this program ends", error)
        finally:
            notice.cancel()
