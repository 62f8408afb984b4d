"""The GpuDaskCluster that a program works with: created or found as `create_mode` says, deleted when it was its own."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.pool import MAX_REPLICAS
from gpudask.kubecluster import overrides, pools
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterTimeoutError, KubeClusterValueError
from gpudask.kubecluster.kube.config import Access, pod_namespace
from gpudask.kubecluster.kube.pods import list_pods, read_logs
from gpudask.kubecluster.kube.request import CONFLICT, FORBIDDEN, NOT_FOUND
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.manifest import (
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


@dataclass(frozen=True)
class Created:
    """A cluster that this process made: which one, and how to reach its server again."""

    name: str
    namespace: str
    uid: str
    kubeconfig: str | None = None
    context: str | None = None


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
    """

    def __init__(self, options: Options, *, timing: Timing) -> None:
        wanted = options.name or name_of(options.arguments.custom_cluster_spec) or None
        self.name = cluster_name(wanted, user=user(), nonce=secrets.token_hex(3), environment=os.environ)
        self.may_create = options.create_mode is not CreateMode.CONNECT_ONLY
        self._manifest = manifest(self.name, options.arguments) if self.may_create else {}
        self._wanted_namespace = options.namespace or self._manifest.get("metadata", {}).get("namespace")
        self.namespace = self._wanted_namespace or ""
        self.server: Server | None = None
        self.body: Json = {}
        self._arguments, self._mode = options.arguments, options.create_mode
        self._kubeconfig, self._context = options.kubeconfig, options.context
        self._shutdown_on_close = options.shutdown_on_close
        self._found: Created | None = None
        self._timing = timing

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
            return False
        return True

    async def _find(self, server: Server, *, is_inside: bool, log: Callable[[str], None]) -> None:
        wanted = self._manifest or {"metadata": {"name": self.name}}
        program = pod_namespace() if is_inside else ""
        if program and self._manifest and self._arguments.custom_cluster_spec is None:
            wanted = open_to(wanted, program, server.namespace)
        self.body, is_new = await find_or_create(server, wanted, self._mode)
        if self._shutdown_on_close is None:
            self._shutdown_on_close = is_new
        if is_new:
            log(f"created cluster {self.name!r} in namespace {self.namespace!r}: {summary(self.body)}")
        elif given := self._arguments.given():
            log(f"cluster {self.name!r} exists already: it keeps its own {', '.join(given)}")
        uid = self.body["metadata"]["uid"]
        self._found = Created(self.name, self.namespace, uid, self._kubeconfig, self._context)
        self._register_deletion()

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

    async def adapt(self, minimum: int | None, maximum: int | None, pool: str | None) -> None:
        """Let a pool follow demand between limits; the default pool where none is named."""
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
            KubeClusterError: the API server refuses, and `is_needed`, or for another reason than rights.
        """
        scheduler = scheduler and not pool
        try:
            server = self.require_server()
            return await read_logs(server, self.name, scheduler=scheduler, workers=workers, pool=pool, tail=tail)
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
        server, name = self.require_server(), self.name
        body = await server.cluster(name)
        plain = pools.pool_of_group_name(body, pool)
        if overrides.entry_of(body, plain) is not None and not overrides.other_owners(body, plain):
            await overrides.set_size(server, name, None, plain, by=user())
        self.update(await pools.remove_pool(server, name, plain))

    @property
    def shutdown_on_close(self) -> bool:
        """True if it is deleted at the end. It may be set later."""
        return bool(self._shutdown_on_close)

    @shutdown_on_close.setter
    def shutdown_on_close(self, value: bool) -> None:
        self._shutdown_on_close = value
        self._register_deletion()

    def _register_deletion(self) -> None:
        """Note for the interpreter's end whether the cluster goes then."""
        if self._found is not None:
            (delete_at_exit if self._shutdown_on_close else keep_at_exit)(self._found)

    async def close(self, gone_within_seconds: float | None = None) -> None:
        """Delete it, where it is to be deleted at the end; with a time limit, wait until it and its pods are gone.

        Raises:
            KubeClusterTimeoutError: it was deleted, and something of it is left when the time is over.
        """
        if self._found is None:
            return
        if self._shutdown_on_close:
            try:
                await delete(self._found, self._timing)
            except KubeClusterError as error:  # not raised: it would hide why a start failed
                logger.warning("gpudask: %s; it is tried again when this program ends", error)
                return
        found, self._found = self._found, None
        keep_at_exit(found)
        if self._shutdown_on_close and gone_within_seconds is not None and self.server is not None:
            await wait_until_gone(self.server, found, Deadline(gone_within_seconds, self._timing))


async def wait_until_gone(server: Server, deleted: Created, deadline: Deadline) -> None:
    """Wait until a deleted cluster is gone and, where pods may be listed, the last of its pods.

    Raises:
        KubeClusterTimeoutError: not within the deadline.
    """
    name, left = deleted.name, "the API server did not answer"
    while True:
        body = await deadline.attempt(server.find(name))
        if not deadline.trouble:
            is_there = body is not None and body["metadata"]["uid"] == deleted.uid
            pods = await _pods_of(server, deleted, deadline)
            if not is_there and not pods and not deadline.trouble:
                return
            left = f"{len(pods)} of its pods are left" if pods else "the API server still has it"
        if deadline.is_over:
            raise KubeClusterTimeoutError(
                f"cluster {name!r} was deleted, and is not gone within {deadline.limit_seconds:g} s",
                reason=deadline.trouble or left,
                next_step=f"See kubectl get pods -l gpudask.dev/cluster={name} -n {deleted.namespace}",
            )
        await server.timing.clock.sleep(server.timing.readiness_poll_seconds)


async def _pods_of(server: Server, deleted: Created, deadline: Deadline) -> list[Json]:
    try:
        listed = await deadline.attempt(list_pods(server, deleted.name)) or []
    except KubeClusterError:  # without the right to list pods, the cluster alone is looked at
        return []
    owners = [(pod, pod["metadata"].get("ownerReferences") or []) for pod in listed]
    return [pod for pod, refs in owners if any(ref.get("uid") == deleted.uid for ref in refs)]


async def find_or_create(server: Server, body: Json, mode: CreateMode) -> tuple[Json, bool]:
    """The cluster that `body` names, and whether it was made just now.

    Raises:
        KubeClusterError: it exists or does not, and `mode` says otherwise; or the server refuses.
    """
    name = body["metadata"]["name"]
    if mode is CreateMode.CONNECT_ONLY:
        return await server.cluster(name), False
    if mode is CreateMode.CREATE_ONLY:
        return await server.create(body), True
    found = await server.find(name)
    if found is not None:
        return found, False
    try:
        return await server.create(body), True
    except KubeClusterError as error:
        if error.status != CONFLICT:
            raise
        return await server.cluster(name), False  # somebody was faster


def delete_at_exit(created: Created) -> None:
    """Delete it when this interpreter ends, unless `keep_at_exit` is called for it before."""
    _to_delete.add(created)


def keep_at_exit(created: Created) -> None:
    """Take back `delete_at_exit`."""
    _to_delete.discard(created)


async def delete(created: Created, timing: Timing | None = None) -> None:
    """Delete it now; one that is gone, or was made anew by somebody else since, is left alone."""
    server = await Server.connect(created.namespace, created.kubeconfig, created.context, timing=timing)
    try:
        await server.delete(created.name, uid=created.uid)
    except KubeClusterError as error:
        if error.status not in (CONFLICT, NOT_FOUND):
            raise


_to_delete: set[Created] = set()
_process = os.getpid()


@atexit.register
def _delete_all() -> None:
    """In a process of its own: an interpreter that ends starts no threads any more, which a connection needs."""
    program = (
        "import asyncio, sys\n"
        "from gpudask.kubecluster.resource import Created, delete\n"
        "asyncio.run(delete(Created(*sys.argv[1:4], sys.argv[4] or None, sys.argv[5] or None)))\n"
    )
    if os.getpid() != _process:
        return  # a fork of the one that created them
    started = []
    for created in _to_delete:
        arguments = [created.name, created.namespace, created.uid, created.kubeconfig or "", created.context or ""]
        started.append(subprocess.Popen([sys.executable, "-c", program, *arguments]))
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on by itself
            process.wait(Timing().exit_seconds)
