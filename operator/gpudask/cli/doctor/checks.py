"""The checks, in the order in which a person would go through them. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudask.api import crd
from gpudask.api.resource import VERSION
from gpudask.cli.doctor import gpus, pools
from gpudask.cli.doctor.facts import CRD, Facts, operators
from gpudask.cli.doctor.findings import Finding, Level

Json = dict[str, Any]
_MINOR_AT_LEAST = 29
_INSTALL = "helm install gpudask charts/gpudask -n gpudask-system --create-namespace --set image.repository=..."
_UPGRADE_CRD = "kubectl apply --server-side --force-conflicts -f charts/gpudask/crds"
_STOCK_NAME = "dask-kubernetes-operator"


def judge(facts: Facts, version: str) -> list[Finding]:
    """All findings; `version` is this program's."""
    checks: list[Callable[[Facts, str], list[Finding]]] = [
        _server,
        _definition,
        _operator,
        _operator_rights,
        _own_rights,
        _stock,
    ]
    found = [finding for check in checks for finding in check(facts, version)]
    return [*found, *gpus.nodes(facts), *pools.pools(facts)]


def unreachable(words: str) -> list[Finding]:
    """The only finding where there is no server to ask."""
    return [
        Finding("API server", Level.PROBLEM, words, "check --kubeconfig, --context and that kubectl version answers")
    ]


def _server(facts: Facts, _: str) -> list[Finding]:
    version = facts.version or {}
    text = f"Kubernetes {version.get('gitVersion', 'of unknown version')} answers"
    minor = "".join(letter for letter in str(version.get("minor", "")) if letter.isdigit())
    if minor and int(minor) < _MINOR_AT_LEAST:
        mend = f"upgrade Kubernetes to 1.{_MINOR_AT_LEAST} or newer"
        return [Finding("API server", Level.PROBLEM, f"{text}; 1.{_MINOR_AT_LEAST} is the oldest that works", mend)]
    return [Finding("API server", Level.OK, text)]


def _definition(facts: Facts, _: str) -> list[Finding]:
    check = "resource definition"
    if facts.crd is None:
        return [_unread(check, facts, "crd")]
    if not facts.crd:
        return [Finding(check, Level.PROBLEM, f"{CRD} is not installed", _INSTALL)]
    versions = {item["name"]: item for item in facts.crd["spec"]["versions"]}
    if VERSION not in versions or not versions[VERSION].get("served"):
        text = f"{CRD} serves {', '.join(versions)}, this program speaks {VERSION}"
        return [Finding(check, Level.PROBLEM, text, _UPGRADE_CRD)]
    conditions = {item["type"]: item["status"] for item in (facts.crd.get("status") or {}).get("conditions") or []}
    if conditions.get("Established") != "True":
        return [Finding(check, Level.PROBLEM, f"{CRD} is not established", f"see kubectl describe crd {CRD}")]
    ours = crd.render()["spec"]["versions"][0]["schema"]
    differing = sorted(_differences(versions[VERSION]["schema"], ours))
    if differing:
        listed = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")  # noqa: PLR2004
        text = f"{CRD} has another schema than this version: {listed}"
        return [Finding(check, Level.WARNING, text, f"{_UPGRADE_CRD}, or use the gpudask of the installed version")]
    return [Finding(check, Level.OK, f"{CRD} serves {VERSION}, with this version's schema")]


def _differences(there: Any, here: Any, path: str = "") -> set[str]:
    """The paths of fields that only one of two schemas has. Texts and rules inside a field count for the field."""
    found: set[str] = set()
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {*there, *here} - {"properties"}:
            inner = there.get(key), here.get(key)
            nested = all(isinstance(item, dict) for item in inner) and key in ("items", "openAPIV3Schema")
            found |= (
                _differences(*inner, path) if nested else (set() if inner[0] == inner[1] else {path or "the whole"})
            )
        fields = there.get("properties", {}), here.get("properties", {})
        for name in {*fields[0], *fields[1]}:
            below = f"{path}.{name}" if path else name
            both = name in fields[0] and name in fields[1]
            found |= _differences(fields[0][name], fields[1][name], below) if both else {below}
    return found


def _operator(facts: Facts, version: str) -> list[Finding]:
    if facts.deployments is None:
        return [_unread("operator", facts, "deployments")]
    found = operators(facts.deployments)
    if not found:
        return [Finding("operator", Level.PROBLEM, "no deployment of it in any namespace", _INSTALL)]
    return [_deployment(item, version) for item in found]


def _deployment(item: Json, version: str) -> Finding:
    metadata = item["metadata"]
    where = f"deployment {metadata['name']} in namespace {metadata['namespace']}"
    running = (metadata.get("labels") or {}).get("app.kubernetes.io/version", "of unknown version")
    if not (item.get("status") or {}).get("readyReplicas"):
        command = f"deployment/{metadata['name']} -n {metadata['namespace']}"
        mend = f"see kubectl describe {command}, and kubectl logs {command}"
        wanted = (item.get("spec") or {}).get("replicas", 1)
        if wanted == 0:
            mend = f"kubectl scale {command} --replicas=1"
        return Finding("operator", Level.PROBLEM, f"{where} has no pod that is ready", mend)
    if running != version:
        mend = f"upgrade one of them: this program is of gpudask {version}"
        return Finding("operator", Level.WARNING, f"{where} runs version {running}, this program is {version}", mend)
    return Finding("operator", Level.OK, f"{where} runs version {running}")


def _operator_rights(facts: Facts, _: str) -> list[Finding]:
    check = "operator's rights"
    if not operators(facts.deployments or []):
        return []
    if facts.operator_may_not is None:
        return [_unread(check, facts, "operator_may_not")]
    if not facts.operator_may_not:
        return [Finding(check, Level.OK, "its service account may do all that it needs")]
    missing = [f"{right} in {place or 'all namespaces'}" for place, right in facts.operator_may_not]
    mend = "install the chart with rbac.create=true, or apply the Role that charts/README.md shows"
    return [Finding(check, Level.PROBLEM, f"its service account may not: {', '.join(missing)}", mend)]


def _own_rights(facts: Facts, _: str) -> list[Finding]:
    check = "your rights"
    if facts.may_not is None:
        return [_unread(check, facts, "may_not")]
    if not facts.may_not:
        return [Finding(check, Level.OK, f"you may do all in namespace {facts.namespace}")]
    text = f"in namespace {facts.namespace} you may not: {', '.join(str(right) for right in facts.may_not)}"
    return [Finding(check, Level.WARNING, text, "ask for the role edit in that namespace: the chart adds ours to it")]


def _stock(facts: Facts, _: str) -> list[Finding]:
    check = "stock Dask operator"
    running = [
        item["metadata"]
        for item in facts.deployments or []
        if (item["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == _STOCK_NAME
        or _STOCK_NAME in item["metadata"]["name"]
    ]
    if running:
        where = ", ".join(f"{item['name']} in {item['namespace']}" for item in running)
        mend = "both can run; its DaskClusters become ours by gpudask convert"
        return [Finding(check, Level.WARNING, f"it runs: {where}. It owns kubernetes.dask.org", mend)]
    if facts.stock_crd:
        return [Finding(check, Level.OK, "its resource definitions are installed, it does not run")]
    if facts.stock_crd is None or facts.deployments is None:
        return [_unread(check, facts, "stock_crd" if facts.stock_crd is None else "deployments")]
    return [Finding(check, Level.OK, "it is not installed")]


def _unread(check: str, facts: Facts, name: str) -> Finding:
    reason = facts.refused.get(name, "it was not read")
    return Finding(
        check, Level.UNKNOWN, f"could not be looked at: {reason}", "ask somebody with an administrator's rights"
    )
