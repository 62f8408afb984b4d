"""What the doctor reads, with what it may not read left as an open question. No judgement here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpudask.api.resource import GROUP, PLURAL
from gpudask.cli.doctor.rights import OPERATOR, USER, Right
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.server import Server

Json = dict[str, Any]
CRD = f"{PLURAL}.{GROUP}"
STOCK_CRD = "daskclusters.kubernetes.dask.org"
_CRDS, _APPS = "apiextensions.k8s.io/v1", "apps/v1"
_OPERATOR_LABELS = "app.kubernetes.io/name=gpudask,app.kubernetes.io/component=operator"
_NOT_FOUND = 404


@dataclass
class Facts:
    """A server as it was read. What is None could not be read: `refused` has the reason under the field's name."""

    version: Json | None = None
    namespace: str = ""
    crd: Json | None = None
    stock_crd: Json | None = None
    deployments: list[Json] | None = None
    daemon_sets: list[Json] | None = None
    nodes: list[Json] | None = None
    clusters: list[Json] | None = None
    may_not: list[Right] | None = None
    operator_may_not: list[tuple[str, Right]] | None = None
    refused: dict[str, str] = field(default_factory=dict)


async def read_facts(server: Server) -> Facts:
    """Everything that the checks want, each on its own: what fails holds back no other.

    Raises:
        KubeClusterError: the API server does not even tell its version.
    """
    facts = Facts(namespace=server.namespace)
    facts.version = await _version(server)
    await asyncio.gather(
        _keep(facts, "crd", _definition(server, CRD)),
        _keep(facts, "stock_crd", _definition(server, STOCK_CRD)),
        _keep(facts, "deployments", _listed(server, "deployments", _APPS)),
        _keep(facts, "daemon_sets", _listed(server, "daemonsets", _APPS)),
        _keep(facts, "nodes", _listed(server, "nodes", "v1")),
        _keep(facts, "may_not", _denied_to_me(server)),
    )
    if facts.crd:
        await _keep(facts, "clusters", _clusters(server))
    if operators(facts.deployments or []):
        deployment = operators(facts.deployments or [])[0]
        await _keep(facts, "operator_may_not", _denied_to_operator(server, deployment))
    return facts


def operators(deployments: list[Json]) -> list[Json]:
    """Those of this project's operator, by the chart's labels."""
    wanted = dict(part.split("=", 1) for part in _OPERATOR_LABELS.split(","))
    return [item for item in deployments if wanted.items() <= (item["metadata"].get("labels") or {}).items()]


def watched(deployment: Json) -> list[str]:
    """The namespaces that an operator runs clusters in; an empty name means all."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value", "") for item in containers[0].get("env") or []}
    return [name for name in env.get("GPUDASK_WATCH_NAMESPACES", "").split(",") if name] or [""]


async def _keep(facts: Facts, name: str, reading: Any) -> None:
    try:
        setattr(facts, name, await reading)
    except KubeClusterError as error:
        facts.refused[name] = error.reason


async def _version(server: Server) -> Json:
    return await server.version()


async def _definition(server: Server, name: str) -> Json:
    """A CRD; empty where there is none."""
    try:
        return await server.call("get", "customresourcedefinitions", name, version=_CRDS, namespace="")
    except KubeClusterError as error:
        if error.status == _NOT_FOUND:
            return {}
        raise


async def _listed(server: Server, resource: str, version: str) -> list[Json]:
    items: list[Json] = (await server.call("list", resource, version=version, namespace=""))["items"]
    return items


async def _clusters(server: Server) -> list[Json]:
    try:
        return await server.clusters(all_namespaces=True)
    except KubeClusterError:
        return await server.clusters()


async def _denied_to_me(server: Server) -> list[Right]:
    answers = await asyncio.gather(*(_review(server, right, server.namespace) for right in USER))
    return [right for right, allowed in zip(USER, answers, strict=True) if not allowed]


async def _denied_to_operator(server: Server, deployment: Json) -> list[tuple[str, Right]]:
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    user = f"system:serviceaccount:{deployment['metadata']['namespace']}:{account}"
    asked = [(place, right) for place in watched(deployment) for right in OPERATOR]
    answers = await asyncio.gather(*(_review(server, right, place, user) for place, right in asked))
    return [pair for pair, allowed in zip(asked, answers, strict=True) if not allowed]


async def _review(server: Server, right: Right, namespace: str, user: str = "") -> bool:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec = {"resourceAttributes": right.attributes(namespace)} | ({"user": user} if user else {})
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    if user:  # a service account is in these groups, and rights may be given to them
        body["spec"]["groups"] = ["system:serviceaccounts", "system:authenticated"]  # type: ignore[index]
    answer = await server.call("create", f"{kind.lower()}s", version="authorization.k8s.io/v1", namespace="", body=body)
    return bool(answer["status"].get("allowed"))
