"""What is done to GpuDaskClusters on the API server, one request each."""

from __future__ import annotations

from typing import Any

from gpudask.api.resource import GROUP, PLURAL
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.overrides import CREATOR, FIELD_MANAGER
from gpudask.kubecluster.request import CONFLICT, NOT_FOUND, Connection

Json = dict[str, Any]


class Clusters(Connection):
    """The GpuDaskClusters of one API server."""

    async def cluster(self, name: str) -> Json:
        """The GpuDaskCluster `name`.

        Raises:
            KubeClusterError: there is none (the message names those that exist), or the server refuses.
        """
        try:
            return await self.call("get", PLURAL, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            raise await self._no_such_cluster(name, error) from error

    async def find(self, name: str) -> Json | None:
        """The GpuDaskCluster `name`, None where there is none."""
        try:
            return await self.call("get", PLURAL, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def clusters(self, *, all_namespaces: bool = False) -> list[Json]:
        """The GpuDaskClusters of this namespace or of all, by namespace and name."""
        try:
            answer = await self.call("list", PLURAL, namespace="" if all_namespaces else None)
        except KubeClusterError as error:
            raise (_no_operator("cannot list clusters") if error.status == NOT_FOUND else error) from error
        return sorted(answer["items"], key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def create(self, body: Json) -> Json:
        """Create a GpuDaskCluster from a whole manifest, in this connection's namespace.

        Raises:
            KubeClusterError: it exists already (`status` 409), it is not valid (422, in the server's words), or
                the server refuses.
        """
        name = body["metadata"]["name"]
        try:
            return await self.call(
                "create", PLURAL, body=body, params={"fieldManager": CREATOR, "fieldValidation": "Strict"}
            )
        except KubeClusterError as error:
            if error.status == CONFLICT:
                raise KubeClusterError(
                    f"cluster {name!r} exists already in namespace {self.namespace!r}",
                    reason=error.reason,
                    next_step=f"Connect to it: KubeCluster.from_name({name!r}), or choose another name",
                    status=CONFLICT,
                ) from error
            if error.status == NOT_FOUND:
                raise self._no_place(f"cannot create cluster {name!r}", error) from error
            raise

    async def delete(self, name: str, uid: str = "") -> bool:
        """Delete the GpuDaskCluster `name`, and with it all that it owns. False where there was none.

        With `uid` only that very one: another of the same name is answered with `status` 409.
        """
        options: Json = {"propagationPolicy": "Background"} | ({"preconditions": {"uid": uid}} if uid else {})
        try:
            await self.call("delete", PLURAL, name, body=options)
        except KubeClusterError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    async def apply(self, body: Json, manager: str = FIELD_MANAGER) -> Json:
        """Server-side apply of a GpuDaskCluster as `manager`; conflicts are ours to win."""
        return await self.call(
            "patch",
            PLURAL,
            body["metadata"]["name"],
            body=body,
            params={"fieldManager": manager, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def merge(self, name: str, patch: Json, manager: str = CREATOR) -> Json:
        """JSON merge patch of the GpuDaskCluster `name` as `manager`, such as `{"spec": {"suspend": True}}`.

        A list is replaced whole: put the `resourceVersion` that was read into `metadata`, and a write that came
        between is refused with 409.
        """
        return await self.call(
            "patch",
            PLURAL,
            name,
            body=patch,
            params={"fieldManager": manager, "fieldValidation": "Strict"},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def _no_such_cluster(self, name: str, error: KubeClusterError) -> KubeClusterError:
        try:
            listed = await self.call("list", PLURAL)
        except KubeClusterError as listing:
            return _no_operator(f"no cluster {name!r}") if listing.status == NOT_FOUND else error
        names = ", ".join(sorted(item["metadata"]["name"] for item in listed["items"]))
        return KubeClusterError(
            f"no cluster {name!r} in namespace {self.namespace!r}",
            reason=f"there are: {names}" if names else "there is none at all",
            next_step="Use one of these names, or another namespace="
            if names
            else "Apply a manifest, such as examples/minimal.yaml, or use another namespace=",
            status=NOT_FOUND,
        )

    def _no_place(self, what: str, error: KubeClusterError) -> KubeClusterError:
        """Of a create that is answered with 404: there is no such namespace, or no such kind."""
        if not error.reason.startswith("namespaces "):
            return _no_operator(what)
        return KubeClusterError(
            what,
            reason=f"there is no namespace {self.namespace!r}",
            next_step=f"Create it: kubectl create namespace {self.namespace}, or use another namespace=",
            status=NOT_FOUND,
        )


def _no_operator(what: str) -> KubeClusterError:
    return KubeClusterError(
        what,
        reason=f"this server knows no {PLURAL}.{GROUP}",
        next_step="Install the operator: helm install gpudask charts/gpudask",
        status=NOT_FOUND,
    )
