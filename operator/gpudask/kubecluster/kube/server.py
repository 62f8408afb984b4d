"""What the client asks about GpuDaskClusters, one request each: create, read, apply, patch, watch, delete.

What is read of their pods is in pods.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import API_VERSION, GROUP, KIND, LABEL_CLUSTER, PLURAL, RECORD_PLURAL
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError, name_older_definition
from gpudask.kubecluster.kube.config import Access, Choice, pod_namespace
from gpudask.kubecluster.kube.credentials import Login
from gpudask.kubecluster.kube.request import CONFLICT, FORBIDDEN, NOT_FOUND, Connection
from gpudask.kubecluster.kube.session import Session
from gpudask.kubecluster.timing import Timing

CREATOR = "gpudask-client-spec"  # field manager of what this client created or edited: pools, suspend
_ATTEMPTS = 5
_PAGE = "50"  # records of an answer
# https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_DELETIONS = {Reason.IDLE_TOO_LONG, Reason.DISCONNECTED_TOO_LONG}  # of the operator's events


class Server(Connection):
    """One API server and one namespace."""

    @classmethod
    async def connect(
        cls,
        namespace: str | None,
        kubeconfig: str | None = None,
        context: str | None = None,
        *,
        timing: Timing | None = None,
    ) -> Server:
        """The server of a kubeconfig, or of the pod that this runs in.

        Args:
            namespace: without one, the context's or the pod's own.
            kubeconfig: a path, or several with `:` between; without one KUBECONFIG's, then ~/.kube/config.
            context: a name in the kubeconfig; without one, the current.
            timing: intervals and deadlines of all that is asked through it.

        Raises:
            KubeClusterError: there is no kubeconfig and no pod, no such context, there are no credentials, or nothing
                answers within 10 s (30 s where something takes the connection).
        """
        return await cls.connect_as(Access(kubeconfig, context).choice(), namespace, timing=timing)

    @classmethod
    async def connect_as(cls, choice: Choice | None, namespace: str | None, *, timing: Timing | None = None) -> Server:
        """The server of a context as it was read once, wherever the kubeconfig leads by now.

        Args:
            choice: another connection's `kept`; None: the pod's own service account.
            namespace: without one, the context's or the pod's own.
            timing: intervals and deadlines of all that is asked through it.

        Raises:
            KubeClusterError: there are no credentials, or nothing answers.
        """
        timing = timing or Timing()
        at = f" of context {choice.context!r}" if choice else ""
        login = Login(choice, timing)
        try:
            session = await Session.open(login, timing)
        except (httpx.InvalidURL, ValueError) as error:
            raise KubeClusterError(
                f"the server or proxy-url{at} is no URL", reason=str(error), next_step="Correct the kubeconfig"
            ) from error
        except ImportError as error:  # httpx says it of a SOCKS proxy, in the kubeconfig or the environment
            raise KubeClusterError(
                f"the proxy to the API server{at} cannot be used", reason=str(error), next_step="Or name an http proxy"
            ) from error
        server = cls(session, namespace or (choice.namespace if choice else pod_namespace() or "default"))
        try:
            await server.version()
        except KubeClusterError as error:
            if error.status == FORBIDDEN:  # it answers; what else is allowed will be seen
                return server
            await server.close()
            raise KubeClusterError(
                f"cannot reach the API server{at}",
                reason=error.reason,
                next_step=error.next_step,
                status=error.status,
                unanswered=error.unanswered,
            ) from error
        return server

    @property
    def kept(self) -> Choice | None:
        """The context that this connection keeps to, for `connect_as`; None in a pod without a kubeconfig."""
        return self.session.login.choice

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

    async def find(self, name: str, resource: str = PLURAL) -> Json | None:
        """The GpuDaskCluster `name`, or what `resource` is the plural of; None where there is none."""
        try:
            return await self.call("get", resource, name)
        except KubeClusterError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def clusters(self, *, all_namespaces: bool = False, selector: str = "") -> list[Json]:
        """The GpuDaskClusters of this namespace or of all, by namespace and name; with the labels of `selector`."""
        try:
            params = {"labelSelector": selector} if selector else {}
            answer = await self.call("list", PLURAL, namespace="" if all_namespaces else None, params=params)
        except KubeClusterError as error:
            raise (_no_operator("cannot list clusters") if error.status == NOT_FOUND else error) from error
        return sorted(answer["items"], key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def each_record(
        self, *, cluster: str = "", all_namespaces: bool = False, metadata_only: bool = False
    ) -> AsyncGenerator[Json]:
        """The GpuDaskRecords of this namespace or of all, in the server's order, by namespace and name.

        Page by page: one may have 200 kB, and there may be thousands.

        Args:
            cluster: of the clusters of this name alone; of all where it is empty.
            all_namespaces: of every namespace.
            metadata_only: nothing of each but its `metadata`.

        Raises:
            KubeClusterError: the server refuses, or knows no such kind.
        """
        params = {"limit": _PAGE} | ({"labelSelector": f"{LABEL_CLUSTER}={cluster}"} if cluster else {})
        headers = {"Accept": _METADATA_LIST} if metadata_only else {}
        namespace = "" if all_namespaces else None
        while True:
            try:
                answer = await self.call(
                    "list", RECORD_PLURAL, version=API_VERSION, namespace=namespace, params=params, headers=headers
                )
            except KubeClusterError as error:
                if error.status != NOT_FOUND:
                    raise
                raise KubeClusterError(
                    "cannot list what became of clusters",
                    reason=f"this server knows no {RECORD_PLURAL}.{GROUP}",
                    next_step="kubectl apply --server-side -f crds/gpudaskrecords.yaml, of the operator's version",
                    status=NOT_FOUND,
                ) from error
            for body in answer["items"]:
                yield body
            if not (position := answer["metadata"].get("continue")):
                return
            params["continue"] = position

    async def create(self, body: Json, *, dry_run: bool = False) -> Json:
        """Create a GpuDaskCluster from a whole manifest, in this connection's namespace.

        With `dry_run` the server checks it and answers as it would, and keeps nothing.

        Raises:
            KubeClusterError: it exists already (`status` 409), it is not valid (422, in the server's words), or
                the server refuses.
        """
        name = body["metadata"]["name"]
        try:
            params = {"fieldManager": CREATOR, "fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
            return await self._write("create", body=body, params=params)
        except KubeClusterError as error:
            if error.status == CONFLICT:
                raise KubeClusterValueError(
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

    async def apply(self, body: Json, manager: str) -> Json:
        """Server-side apply of a GpuDaskCluster as `manager`; conflicts are ours to win."""
        return await self._write(
            "patch",
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
        return await self._write(
            "patch",
            name,
            body=patch,
            params={"fieldManager": manager, "fieldValidation": "Strict"},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def rewrite(self, name: str, write: Callable[[Json], Awaitable[Json]]) -> tuple[Json, Json]:
        """The cluster `name` as it was, and as it is after `write`; again where another write came between.

        Args:
            name: the cluster's.
            write: is given the cluster as it is, writes what follows from it, and returns the answer. It names the
                resourceVersion that it was given, so that the API server refuses it with 409 where that is not the
                last.

        Raises:
            KubeClusterError: what `write` raises, or there was always another write between.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self.cluster(name)
            try:
                return before, await write(before)
            except KubeClusterError as error:
                if error.status != CONFLICT or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def changes(
        self,
        since: str,
        *,
        name: str = "",
        namespace: str | None = None,
        selector: str = "",
        resource: str = PLURAL,
    ) -> AsyncGenerator[tuple[str, Json], None]:
        """ADDED, MODIFIED or DELETED, and the cluster, after the version `since`; ends where the server ends it.

        Args:
            since: a resourceVersion.
            name: of one cluster; of all where it is empty.
            namespace: instead of the connection's own; `""` for all.
            selector: of those with these labels; one that loses them is DELETED.
            resource: the plural of what is watched.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        params = {"fieldSelector": f"metadata.name={name}"} if name else {}
        params |= {"labelSelector": selector} if selector else {}
        async with aclosing(self.events(resource, since, params=params, namespace=namespace)) as events:
            async for event in events:
                yield event

    async def why_deleted(self, name: str, uid: str = "") -> str:
        """Why the operator deleted the cluster `name`, which is gone, as its event says for about an hour.

        Empty where it did not, or where that may not be read.

        Args:
            name: the cluster's.
            uid: of that very one; without it the last of this name.
        """
        selector = f"involvedObject.kind={KIND},involvedObject.name={name}"
        selector += f",involvedObject.uid={uid}" if uid else ""
        try:
            listed = await self.call("list", "events", params={"fieldSelector": selector})
        except KubeClusterError:
            return ""
        told = [event for event in listed["items"] if event.get("reason") in _DELETIONS]
        told.sort(key=lambda event: str(event["metadata"].get("creationTimestamp")))
        return "".join(f"the operator deleted it: {_cause(event)}" for event in told[-1:])

    async def _write(self, verb: str, name: str = "", **options: Any) -> Json:
        """A write of a GpuDaskCluster, as `call`; a definition that is older than this program is named."""
        try:
            return await self.call(verb, PLURAL, name, **options)
        except KubeClusterError as error:
            told = name_older_definition(error)
            if told is error:
                raise
            raise told from error

    async def _no_such_cluster(self, name: str, error: KubeClusterError) -> KubeClusterError:
        try:
            listed = await self.call("list", PLURAL)
        except KubeClusterError as listing:
            return _no_operator(f"no cluster {name!r}") if listing.status == NOT_FOUND else error
        names = ", ".join(sorted(item["metadata"]["name"] for item in listed["items"]))
        why = await self.why_deleted(name)
        return KubeClusterValueError(
            f"no cluster {name!r} in namespace {self.namespace!r}",
            reason=(f"{why}; " if why else "") + (f"there are: {names}" if names else "there is none at all"),
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


def _cause(event: Json) -> str:
    return str(event.get("message", "")).removeprefix("it is to be deleted: ")


def _no_operator(what: str) -> KubeClusterError:
    return KubeClusterError(
        what,
        reason=f"this server knows no {PLURAL}.{GROUP}",
        next_step="Install the operator: helm install gpudask charts/gpudask",
        status=NOT_FOUND,
    )
