"""Client for the operator's requests to the API server, each named by what it does to which object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NoReturn

from gpudask.api import Json
from gpudask.api.resource import (
    API_VERSION,
    CRON_JOB_PLURAL,
    JOB_PLURAL,
    PLURAL,
    RECORD_PLURAL,
    STOCK_MANAGER,
    Identity,
)
from gpudask.clients.errors import ApiError, ClusterGoneError
from gpudask.clients.flow_control import FairQueue
from gpudask.clients.pages import MOST, pages
from gpudask.clients.transport import JSON, ApiServer
from gpudask.desired.pod import MAIN_CONTAINER

Marks = dict[str, str | None]

FIELD_MANAGER = "gpudask"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_PAGE = 500  # objects without their contents
_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# Of all requests, statuses: where the API server is the slowest, pods come first, and what changes meanwhile is one
# write. Of one namespace fewer: a thousand clusters of it wait for each other, and for nobody else's.
_STATUSES_AT_ONCE, _STATUSES_AT_ONCE_NAMESPACE = 8, 6
_PLURALS = {"NetworkPolicy": "networkpolicies"}  # of the others it is the name with an s


class Kubernetes(ApiServer):
    """The API server, with a method for each request that the operator makes. Raises ApiError, and nothing else."""

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self._statuses = FairQueue(_STATUSES_AT_ONCE, 1, _STATUSES_AT_ONCE_NAMESPACE)

    async def create(self, body: Json, *, dry_run: bool = False, bulk: bool = False) -> Json:
        """Create an object, strictly: a field that Kubernetes does not know is refused, not dropped.

        `bulk`: as `request`.
        """
        query = {"fieldValidation": "Strict", "fieldManager": FIELD_MANAGER}
        if dry_run:
            query["dryRun"] = "All"
        return await self.request("POST", collection(body), query=query, body=body, bulk=bulk)

    async def apply(self, body: Json, *, force: bool = True) -> Json:
        """Server-side apply: our fields become as given, others' stay. Without `force`, not those that others set."""
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower(), "fieldValidation": "Strict"}
        path = f"{collection(body)}/{body['metadata']['name']}"
        return await self.request("PATCH", path, query=query, body=body, content_type=_APPLY)

    async def get(self, body: Json) -> Json:
        """Get the object of `body`'s kind and name."""
        return await self.request("GET", f"{collection(body)}/{body['metadata']['name']}")

    async def get_config_map(self, namespace: str, name: str) -> Json:
        """Get a ConfigMap."""
        return await self.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")

    async def patch_references(self, namespace: str, name: str, changes: list[Json], *, uid: str) -> Json:
        """Change owner references of the ConfigMap with this uid; the others stay, whatever they are.

        By a strategic merge patch, which finds references by their uid, and removes one with `$patch: delete`.
        """
        body = {"metadata": {"uid": uid, "ownerReferences": changes}}
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self.request("PATCH", path, query=query, body=body, content_type=_STRATEGIC_PATCH)

    async def get_pod(self, namespace: str, name: str) -> Json:
        """Get a pod."""
        return await self.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def delete_pod(
        self, namespace: str, name: str, *, uid: str, version: str | None = None, never_ran: bool = False
    ) -> Json:
        """Delete this very pod, with `version` only if it did not change since; `never_ran`: without grace.

        A process that gets its SIGTERM while it starts, as process 1 without a handler, would ignore it: it would come
        up, accept work, and be killed with it when the grace period ends.
        """
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if version is not None:
            body["preconditions"]["resourceVersion"] = version
        if never_ran:
            body["gracePeriodSeconds"] = 1
        return await self.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body=body)

    async def mark_pod(
        self, namespace: str, name: str, *, uid: str, annotations: Marks | None = None, labels: Marks | None = None
    ) -> Json:
        """Set annotations and labels on this very pod; None removes one."""
        body = {"metadata": {"uid": uid, "annotations": annotations or {}, "labels": labels or {}}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return await self.request("PATCH", path, body=body, content_type=_MERGE_PATCH)

    async def read_log(
        self, namespace: str, name: str, *, lines: int, at_most: int, previous: bool, container: str = MAIN_CONTAINER
    ) -> str:
        """The last lines of a pod's main container, of the `previous` one where it was started again.

        `at_most`: bytes, counted from the first of these lines, so it should be many.
        """
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(at_most)}
        query |= {"previous": "true"} if previous else {}
        return await self.text(f"/api/v1/namespaces/{namespace}/pods/{name}/log", query=query)

    def follow_log(
        self, namespace: str, name: str, *, lines: int, at_most: int, seconds: float
    ) -> AsyncGenerator[bytes]:
        """The last lines of a pod's main container, and what it writes from now on until it ends; as `read_log`."""
        query = {"container": MAIN_CONTAINER, "tailLines": str(lines), "limitBytes": str(at_most), "follow": "true"}
        return self.chunks(f"/api/v1/namespaces/{namespace}/pods/{name}/log", query=query, seconds=seconds)

    async def get_record(self, namespace: str, name: str) -> Json:
        """Get a GpuDaskRecord."""
        return await self.request("GET", _records(namespace, name))

    async def put_record(self, body: Json) -> Json:
        """Create a GpuDaskRecord, or replace the one of the version that `body` names.

        What the installed definition does not know of it is dropped, as where the operator is newer.
        """
        metadata = body["metadata"]
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Ignore"}
        if "resourceVersion" in metadata:
            path = _records(metadata["namespace"], metadata["name"])
            return await self.request("PUT", path, query=query, body=body, bulk=True)
        return await self.request("POST", collection(body), query=query, body=body, bulk=True)

    async def delete_record(self, namespace: str, name: str, *, uid: str, version: str) -> None:
        """Delete this very GpuDaskRecord, if it did not change since."""
        preconditions = {"uid": uid, "resourceVersion": version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        await self.request("DELETE", _records(namespace, name), body=body)

    async def records(self, namespace: str) -> AsyncGenerator[Json]:
        """The metadata of all GpuDaskRecords of `namespace`, page by page; of all namespaces where it is empty."""
        where = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{API_VERSION}/{where}{RECORD_PLURAL}"
        async with aclosing(pages(self, path, query={}, accept=METADATA_LIST, most=_METADATA_PAGE)) as found:
            async for page in found:
                for body in page.get("items") or ():
                    yield body

    async def get_cluster(self, namespace: str, name: str) -> Json:
        """Get a GpuDaskCluster."""
        return await self.request("GET", _clusters(namespace, name))

    async def get_job(self, namespace: str, name: str) -> Json:
        """Get a GpuDaskJob."""
        return await self.request("GET", _jobs(namespace, name))

    async def get_cron_job(self, namespace: str, name: str) -> Json:
        """Get a GpuDaskCronJob."""
        return await self.request("GET", f"/apis/{API_VERSION}/namespaces/{namespace}/{CRON_JOB_PLURAL}/{name}")

    async def delete_job(self, namespace: str, name: str, *, uid: str, version: str) -> None:
        """Delete this very GpuDaskJob, if it did not change since, and what it owns after it."""
        preconditions = {"uid": uid, "resourceVersion": version}
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        await self.request("DELETE", _jobs(namespace, name), body=body)

    async def lift_gate(self, namespace: str, name: str, gate: str, *, uid: str) -> Json:
        """Take a scheduling gate off this very pod; by a strategic merge patch, which leaves the other gates."""
        body = {"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return await self.request("PATCH", path, body=body, content_type=_STRATEGIC_PATCH)

    async def end_containers(self, namespace: str, name: str, *, uid: str) -> Json:
        """End all that runs in this very pod: it has failed then, and stays with its logs."""
        body = {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": 1}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return await self.request("PATCH", path, body=body, content_type=_MERGE_PATCH)

    async def confirm_gone(self, cluster: Identity, error: ApiError, *, after_seconds: float) -> NoReturn:
        """Ask again whether the cluster is gone, as the 404 `error` says: nobody would start its loop again.

        An API server that starts, or a definition that is installed again, answers so for what exists.

        Raises:
            ClusterGoneError: a second request finds no such cluster either, or another of its name.
            ApiError: it exists: `error`, as any other failure; or the second request failed.
        """
        await asyncio.sleep(after_seconds)
        try:
            body = await self.get_cluster(cluster.namespace, cluster.name)
        except ApiError as again:
            if again.object_not_found:
                raise ClusterGoneError from again
            raise
        if body["metadata"]["uid"] != cluster.uid:
            raise ClusterGoneError from error
        raise error

    async def set_overrides(self, body: Json, overrides: list[Json], *, manager: str) -> Json:
        """Set `spec.overrides` of the GpuDaskCluster `body` as it is there; a newer one is a conflict."""
        metadata = body["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"overrides": overrides}}
        path = _clusters(metadata["namespace"], metadata["name"])
        query = {"fieldManager": manager, "fieldValidation": "Strict"}
        return await self.request("PATCH", path, query=query, body=patch, content_type=_MERGE_PATCH)

    async def replace_spec(self, body: Json, spec: Json) -> Json:
        """Replace the spec of the GpuDaskCluster `body` as it is there; a newer one is a conflict."""
        metadata = body["metadata"]
        changes = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
            {"op": "replace", "path": "/spec", "value": spec},
        ]
        path = _clusters(metadata["namespace"], metadata["name"])
        query = {"fieldManager": STOCK_MANAGER, "fieldValidation": "Strict"}
        return await self.request("PATCH", path, query=query, body=changes, content_type=_JSON_PATCH)

    async def delete_cluster(self, namespace: str, name: str, *, uid: str, version: str = "") -> bool:
        """Delete this very GpuDaskCluster; with `version` only if it did not change since. Whether it is gone by now.

        Else its finalizers keep it for a while.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        answer = await self.request("DELETE", _clusters(namespace, name), body=body)
        return answer.get("kind") == "Status"

    async def merge(self, body: Json, *, version: str) -> Json:
        """Merge `body` into the object of its name, which is still at `version`; a null removes a field."""
        merged = body | {"metadata": body["metadata"] | {"resourceVersion": version}}
        path = f"{collection(body)}/{body['metadata']['name']}"
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return await self.request("PATCH", path, query=query, body=merged, content_type=_MERGE_PATCH)

    async def delete(self, body: Json, *, uid: str, version: str) -> None:
        """Delete the object of `body`'s kind and name, if it is this very one and unchanged."""
        preconditions = {"uid": uid, "resourceVersion": version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        await self.request("DELETE", f"{collection(body)}/{body['metadata']['name']}", body=options)

    async def delete_tree(self, body: Json, *, uid: str) -> None:
        """Delete this very object of `body`'s kind and name, and what it owns after it."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        await self.request("DELETE", f"{collection(body)}/{body['metadata']['name']}", body=options)

    async def list_labelled(
        self, path: str, selector: str, *, most: int, reduce: Callable[[Json], Json] | None = None
    ) -> list[Json]:
        """The objects at `path` that fit the label selector, about `most` of them at most.

        `reduce`: what is kept of each, which is whole then and may be large; None: only their metadata are read.
        """
        accept, page_size = (METADATA_LIST, _METADATA_PAGE) if reduce is None else (JSON, MOST)
        found: list[Json] = []
        listed = pages(self, path, query={"labelSelector": selector}, accept=accept, most=page_size)
        async with aclosing(listed) as every:
            async for page in every:
                items = page.get("items") or ()
                found += items if reduce is None else map(reduce, items)
                if len(found) >= most:
                    break
        return found

    async def write_status(
        self, namespace: str, name: str, *, uid: str, version: str, status: Json, plural: str = PLURAL
    ) -> Json:
        """Replace the status of this very cluster, or job; one that is no longer at `version` is a conflict."""
        body = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}/{name}/status"
        async with self._statuses.slot():
            return await self.request("PATCH", path, body=body, content_type=_JSON_PATCH)


def collection(body: Json) -> str:
    """The path under which objects of this kind are created."""
    version, namespace = body["apiVersion"], body["metadata"]["namespace"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(body["kind"], f"{body['kind'].lower()}s")
    return f"{group}/namespaces/{namespace}/{plural}"


def _records(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{RECORD_PLURAL}/{name}"


def _clusters(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}/{name}"


def _jobs(namespace: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{JOB_PLURAL}/{name}"
