"""Put the parts together: clients, caches and the registry, from the settings."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import socket
from typing import Any

from gpudask.api.resource import API_VERSION, LABEL_CLUSTER, PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.events import EventRecorder
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.reflector import Reflector
from gpudask.clients.scheduler import SchedulerClient
from gpudask.desired import mirror
from gpudask.planning.mirrored import observe_mirrored
from gpudask.planning.reduce import observe_pod
from gpudask.preload import sources
from gpudask.reconcile.caches import Caches
from gpudask.reconcile.context import Context, observe_owned
from gpudask.reconcile.definitions import Definitions, look_for
from gpudask.reconcile.registry import Registry
from gpudask.reconcile.supervisor import Supervisor
from gpudask.settings import Settings

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_SYNC_SECONDS = 120.0
_KEY = "key"


class ResourceMissingError(Exception):
    """The API server knows no GpuDaskCluster; the message says what to do."""


class Operator:
    """Everything that runs beside kopf."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = Registry()
        self.supervisor = Supervisor()
        self._context: Context | None = None
        self._watches: list[asyncio.Task[None]] = []

    @property
    def synced(self) -> bool:
        """Whether the caches are complete and the loops may act."""
        return self._context is not None

    async def start(self) -> None:
        """Connect, fill the caches, and only then let the loops act: half a cache looks like missing pods.

        Raises:
            ApiError: the API server refuses what the operator needs.
            ResourceMissingError: the CRD is not installed.
            TimeoutError: the caches did not fill.
        """
        api = await Kubernetes.connect(self.settings.kubeconfig or None)
        try:
            await self._start(api)
        except BaseException:
            await self._end_watches()  # kopf tries again, from the beginning
            await api.close()
            raise

    async def _start(self, api: Kubernetes) -> None:
        await _require_resource(api, self.settings.watch_namespaces)
        key = await _operator_key(api, self.settings.namespace, self.settings.key_secret)
        pods = self._caches(api, "pods", observe_pod, metadata_only=False)
        support = {
            kind: self._caches(api, plural, observe_owned(kind), metadata_only=True, version=version)
            for kind, plural, version in (
                ("Service", "services", "api/v1"),
                ("ConfigMap", "configmaps", "api/v1"),
                ("PodDisruptionBudget", "poddisruptionbudgets", "apis/policy/v1"),
            )
        }
        definitions = await self._mirror(api)
        mirrored = definitions.caches.values() if definitions else ()
        every = [r for caches in (pods, *support.values(), *mirrored) for r in caches.reflectors]
        self._watches = [self.supervisor.start(r.run, kind="watch", name=r.path) for r in every]
        async with asyncio.timeout(_SYNC_SECONDS):
            await asyncio.gather(*(reflector.synced.wait() for reflector in every))
        self._context = Context(
            api=api,
            schedulers=SchedulerClient(),
            events=EventRecorder(api, socket.gethostname()),
            pods=pods,
            support=support,
            preload=sources(),
            key=key,
            supervisor=self.supervisor,
        )
        self.registry.start(self._context, definitions)
        _LOG.info("the caches are complete")

    async def _mirror(self, api: Kubernetes) -> Definitions | None:
        """The mirror's caches, still empty; None where it is switched off."""
        if not self.settings.mirror:
            return None
        refusal = await look_for(api)
        if refusal:
            _LOG.warning("no mirror for the stock Dask client: %s", refusal)
            return Definitions(refusal=refusal)
        caches = {
            kind: Caches(
                [
                    Reflector(
                        api,
                        path,
                        label="",
                        reduce=observe_mirrored(kind),
                        changed=self.registry.mirror_changed,
                        deleted=self.registry.mirror_deleted,
                    )
                    for path in self._paths(f"apis/{mirror.API_VERSION}", f"{kind.lower()}s")
                ]
            )
            for kind in mirror.KINDS
        }
        return Definitions(caches)

    async def stop(self) -> None:
        """End all loops and watches, and close the connections. Clusters stay as they are."""
        await self.registry.stop()
        await self._end_watches()
        if self._context is not None:
            await self._context.schedulers.close()
            await self._context.api.close()

    async def _end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def _caches(
        self, api: Kubernetes, plural: str, reduce: Any, *, metadata_only: bool, version: str = "api/v1"
    ) -> Caches:
        return Caches(
            [
                Reflector(
                    api,
                    path,
                    label=LABEL_CLUSTER,
                    reduce=reduce,
                    changed=self.registry.changed,
                    metadata_only=metadata_only,
                )
                for path in self._paths(version, plural)
            ]
        )

    def _paths(self, version: str, plural: str) -> list[str]:
        """Where objects are listed: everywhere, or in each watched namespace."""
        namespaces = self.settings.watch_namespaces
        return [f"/{version}/namespaces/{name}/{plural}" for name in namespaces] or [f"/{version}/{plural}"]


async def _require_resource(api: Kubernetes, namespaces: tuple[str, ...]) -> None:
    """Look whether the resource exists: kopf, with the rights that we ask for, would wait for it in silence."""
    where = f"namespaces/{namespaces[0]}/" if namespaces else ""
    try:
        await api.request("GET", f"/apis/{API_VERSION}/{where}{PLURAL}", query={"limit": "1"})
    except ApiError as error:
        if error.not_found:
            raise ResourceMissingError(
                f"the API server knows no {PLURAL} of {API_VERSION}: install the chart's CRD,"
                " kubectl apply --server-side --force-conflicts -f crds/gpudaskclusters.yaml"
            ) from error
        raise


async def _operator_key(api: Kubernetes, namespace: str, name: str) -> bytes:
    """The key from which tokens are derived; made once, by the first operator that starts."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    fresh = base64.b64encode(secrets.token_bytes(32)).decode()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "gpudask"}},
        "data": {_KEY: fresh},
    }
    try:
        secret = await api.request("GET", f"{path}/{name}")
    except ApiError as error:
        if not error.not_found:
            raise
        try:
            secret = await api.request("POST", path, body=body)
        except ApiError as race:
            if not race.conflict:
                raise
            secret = await api.request("GET", f"{path}/{name}")
    return base64.b64decode(secret["data"][_KEY])
