"""`gpudask doctor`: checks of what the operator needs of a Kubernetes cluster, and how to mend what it lacks.

Here it reads the server, each thing on its own; the checks are in the package `doctor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from enum import StrEnum
from http import HTTPStatus
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudask.api import Json
from gpudask.api.resource import API_VERSION, CRON_JOB_PLURAL, GROUP, JOB_PLURAL, PLURAL, RECORD_PLURAL
from gpudask.cli import client, output
from gpudask.cli.doctor import checks
from gpudask.cli.doctor.facts import CRD, Facts, Finding, Level, keeps_history, mirrors, setting, watched
from gpudask.cli.doctor.rights import CLEAN_UP, HISTORY, MIRROR, OPERATOR, USER, Right, of_key
from gpudask.cli.options import Context, Kubeconfig, Namespace
from gpudask.cli.output import CliError, Exit
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.mirror import objects

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

_APPS, _REVIEWS = "apps/v1", "authorization.k8s.io/v1"
_AT_ONCE = 8


class Form(StrEnum):
    """The formats for programs: a list of findings."""

    JSON = "json"
    YAML = "yaml"


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.UNKNOWN: "dim", Level.PROBLEM: "red"}


def doctor_command(
    *,
    output_form: Annotated[Form | None, typer.Option("--output", "-o", help="For programs: a list.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Check what the operator needs, and say how to mend it.

    It looks at the API server, the resource definition, the operator and its pods, rights, the stock operator and the
    mirror, GPU nodes and their device plugin, clusters and pools. What it may not read it says.

    Only a problem changes the exit code.

    \b
    Example:
      gpudask doctor
      gpudask doctor -n team-a -o json
    """  # noqa: D301
    findings = _findings(client.Target(kubeconfig, context, namespace))
    if output_form is not None:
        typer.echo(output.as_text([finding.as_json() for finding in findings], output_form), nl=False)
    else:
        _print(findings)
    problems = sum(finding.level == Level.PROBLEM for finding in findings)
    if problems:
        raise CliError(f"{problems} problems found" if problems > 1 else "1 problem found", Exit.PROBLEM_FOUND)


def _findings(target: client.Target) -> list[Finding]:
    try:
        facts = client.run(target, read_facts)
    except (CliError, KubeClusterError) as error:
        return checks.unreachable(str(error))
    return checks.judge(facts, metadata.version("gpudask"))


def _print(findings: list[Finding]) -> None:
    from rich.text import Text  # noqa: PLC0415 - programs' output does without

    console = output.console()
    for finding in findings:
        line = Text(f"{finding.level.value:8}", style=_STYLES[finding.level])
        line.append(f" {finding.check}: {finding.text}", style="default")
        console.print(line)
        if finding.mend:
            console.print(Text(f"         -> {finding.mend}"))


async def read_facts(server: Server) -> Facts:
    """Everything that the checks want, each on its own: what fails holds back no other.

    Raises:
        KubeClusterError: the API server does not even tell its version.
    """
    facts = Facts(namespace=server.namespace)
    facts.version = await server.version()
    await _keep(facts, "user", _user(server))
    await _keep(facts, "crd", _definition(server, CRD))
    await _keep(facts, "served", _serves(server, PLURAL))
    await _keep(facts, "records_served", _serves(server, RECORD_PLURAL))
    await _keep(facts, "job_definitions", _job_definitions(server))
    await _keep(facts, "dask_kinds", _dask_kinds(server))
    await _keep(facts, "deployments", _listed(server, "deployments", _APPS))
    await _keep(facts, "daemon_sets", _listed(server, "daemonsets", _APPS))
    await _keep(facts, "nodes", _listed(server, "nodes", "v1"))
    await _keep(facts, "may_not", _denied_to_me(server))
    if facts.served:
        await _keep(facts, "clusters", _clusters(server))
    if facts.operators:
        await _keep(facts, "operator_pods", _operator_pods(server, facts.operators))
        await _keep(facts, "operator_may_not", _denied_to_operators(server, facts.running))
    return facts


async def _keep(facts: Facts, name: str, reading: Awaitable[Any]) -> None:
    try:
        setattr(facts, name, await reading)
    except KubeClusterError as error:
        facts.refused[name] = error.reason


async def _user(server: Server) -> str:
    answer = await _create(server, "SelfSubjectReview", "authentication.k8s.io/v1")
    return str(answer["status"]["userInfo"]["username"])


async def _definition(server: Server, name: str) -> Json:
    """The CRD of this name; empty where there is none."""
    kind, version = "customresourcedefinitions", "apiextensions.k8s.io/v1"
    return await _found(server.call("get", kind, name, version=version, namespace=""))


async def _job_definitions(server: Server) -> dict[str, Json]:
    """The CRDs of jobs and cron jobs by their plurals, empty where none is served; without what may not be read."""
    served = {item["name"] for item in await _resources(server, API_VERSION)}
    found: dict[str, Json] = {}
    for plural in (JOB_PLURAL, CRON_JOB_PLURAL):
        if plural not in served:
            found[plural] = {}
            continue
        with suppress(KubeClusterError):
            found[plural] = await _definition(server, f"{plural}.{GROUP}")
    return found


async def _serves(server: Server, plural: str) -> bool:
    """Whether it serves a resource of ours: from the discovery, which everybody may read."""
    return plural in {item["name"] for item in await _resources(server, API_VERSION)}


async def _dask_kinds(server: Server) -> dict[str, list[str]]:
    found = await _resources(server, objects.API_VERSION)
    return {item["kind"]: item.get("categories") or [] for item in found if "/" not in item["name"]}


async def _resources(server: Server, group_version: str) -> list[Json]:
    answer = await _found(server.call("get", "", version=group_version, namespace=""))
    return list(answer.get("resources") or [])


async def _found(reading: Awaitable[Json]) -> Json:
    """The object that is read; empty where there is no such thing."""
    try:
        return await reading
    except KubeClusterError as error:
        if error.status == HTTPStatus.NOT_FOUND:
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


async def _operator_pods(server: Server, operators: list[Json]) -> list[Json]:
    pods: list[Json] = []
    for namespace in sorted({item["metadata"]["namespace"] for item in operators}):
        selector = {"labelSelector": "app.kubernetes.io/name=gpudask,app.kubernetes.io/component=operator"}
        pods += (await server.call("list", "pods", namespace=namespace, params=selector))["items"]
    return pods


async def _denied_to_me(server: Server) -> list[Right]:
    denied = await _denied(server, ((server.namespace, right) for right in USER))
    return [right for _, right in denied]


async def _denied_to_operators(server: Server, operators: list[Json]) -> list[tuple[str, Right]]:
    denied = []
    for deployment in operators:
        home = deployment["metadata"]["namespace"]
        account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
        rights = (*OPERATOR, *(MIRROR if mirrors(deployment) else CLEAN_UP))
        rights += HISTORY if keeps_history(deployment) else ()
        asked = [(namespace, right) for namespace in watched(deployment) for right in rights]
        if secret := setting(deployment, "GPUDASK_KEY_SECRET"):
            asked += [(home, right) for right in of_key(secret)]
        denied += await _denied(server, asked, f"system:serviceaccount:{home}:{account}")
    return denied


async def _denied(server: Server, asked: Iterable[tuple[str, Right]], user: str = "") -> list[tuple[str, Right]]:
    """Those of `asked`, (namespace, right), that `user` has not; without one, that we have not."""
    first, *others = asked
    allowed = [await _review(server, *first, user)]  # whether reviews are refused is known before many are asked for
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(namespace: str, right: Right) -> bool:
        async with turns:
            return await _review(server, namespace, right, user)

    allowed += await asyncio.gather(*(in_turn(*pair) for pair in others))
    return [pair for pair, may in zip([first, *others], allowed, strict=True) if not may]


async def _review(server: Server, namespace: str, right: Right, user: str) -> bool:
    spec: Json = {"resourceAttributes": right.attributes(namespace)}
    if user:  # a service account is in these groups, and rights may be given to them
        home = user.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
        spec |= {"user": user, "groups": groups}
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    return bool((await _create(server, kind, _REVIEWS, spec))["status"].get("allowed"))


async def _create(server: Server, kind: str, version: str, spec: Json | None = None) -> Json:
    body = {"apiVersion": version, "kind": kind} | ({"spec": spec} if spec else {})
    return await server.call("create", f"{kind.lower()}s", version=version, namespace="", body=body)
