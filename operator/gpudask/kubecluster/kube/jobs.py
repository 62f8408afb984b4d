"""What the client asks about GpuDaskJobs, one request each; reading one is `Server.find`, watching `Server.changes`."""

from __future__ import annotations

from gpudask.api import Json
from gpudask.api.resource import GROUP, JOB_KIND, JOB_PLURAL
from gpudask.kubecluster.errors import KubeClusterError, KubeClusterValueError, name_older_definition
from gpudask.kubecluster.kube.request import CONFLICT, NOT_FOUND, Connection

_MANAGER = "gpudask-run"


async def create_job(server: Connection, body: Json) -> Json:
    """Create a GpuDaskJob in this connection's namespace.

    Raises:
        KubeClusterError: there is one of this name (`status` 409), it is not valid, there is no such kind or one that
            is older than this program, or the server refuses.
    """
    name = body["metadata"]["name"]
    try:
        return await server.call(
            "create", JOB_PLURAL, body=body, params={"fieldManager": _MANAGER, "fieldValidation": "Strict"}
        )
    except KubeClusterError as error:
        if error.status != NOT_FOUND or error.reason.startswith("namespaces "):
            told = name_older_definition(error, JOB_KIND)
            if told is error:
                raise
            raise told from error
        raise no_jobs(f"cannot create job {name!r}") from error


async def create_config_map(server: Connection, body: Json) -> Json:
    """Create a ConfigMap in this connection's namespace; one of its name that has the same owner is it.

    Raises:
        KubeClusterError: one of this name is somebody else's (`status` 409), or the server refuses.
    """
    name = body["metadata"]["name"]
    try:
        return await server.call("create", "configmaps", body=body, params={"fieldManager": _MANAGER})
    except KubeClusterError as error:
        if error.status != CONFLICT:
            raise
        found = await server.call("get", "configmaps", name)
        if _owners(found) != _owners(body):
            raise KubeClusterValueError(
                f"cannot create ConfigMap {name!r}",
                reason="there is one of this name that somebody else made",
                next_step=f"kubectl delete configmap {name} -n {server.namespace}, or choose another name for the job",
                status=CONFLICT,
            ) from error
        return found


async def resume_job(server: Connection, name: str, uid: str) -> Json:
    """Let the job `name` run; only that very one: another of the same name is answered with `status` 409.

    Raises:
        KubeClusterError: it is not there any more, or the server refuses.
    """
    return await server.call(
        "patch",
        JOB_PLURAL,
        name,
        body={"metadata": {"uid": uid}, "spec": {"suspend": False}},
        params={"fieldManager": _MANAGER, "fieldValidation": "Strict"},
        headers={"Content-Type": "application/merge-patch+json"},
    )


async def delete_job(server: Connection, name: str, uid: str) -> bool:
    """Delete the job `name` of this uid with all that it owns. False where it is not there any more."""
    options: Json = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
    try:
        await server.call("delete", JOB_PLURAL, name, body=options)
    except KubeClusterError as error:
        if error.status in (NOT_FOUND, CONFLICT):
            return False
        raise
    return True


def no_jobs(what: str) -> KubeClusterError:
    """The error of a server that has no such kind."""
    return KubeClusterError(
        what,
        reason=f"this server knows no {JOB_PLURAL}.{GROUP}",
        next_step="kubectl apply --server-side -f crds/gpudaskjobs.yaml, of the operator's version",
        status=NOT_FOUND,
    )


def _owners(body: Json) -> list[str]:
    return [str(owner.get("uid")) for owner in body["metadata"].get("ownerReferences") or []]
