"""Checks of the clusters that are there: that an operator runs their namespace, and has looked at them. Pure."""

from __future__ import annotations

from typing import Any

from gpudask.api.resource import InvalidSpecError, parse
from gpudask.cli.doctor.facts import Facts, labels, watched
from gpudask.cli.doctor.findings import Finding, Level
from gpudask.kubecluster.reasons import unseen

Json = dict[str, Any]
_TOLD = ("Accepted", "Mirrored")


def clusters(facts: Facts) -> list[Finding]:
    """What keeps clusters from being run; and whether one in the own namespace would be."""
    if facts.clusters is None:
        return [facts.unread("clusters", "clusters")] if facts.served else []
    findings = [finding for body in facts.clusters for finding in _cluster(facts, body)]
    away = not any(body["metadata"]["namespace"] == facts.namespace for body in facts.clusters)
    if away and facts.running and not _is_run(facts, facts.namespace):
        text = f"no operator runs clusters in namespace {facts.namespace}"
        findings.append(Finding("clusters", Level.WARNING, text, _watch_too(facts, facts.namespace)))
    if facts.clusters and not findings:
        findings.append(Finding("clusters", Level.OK, f"the operator has looked at all {len(facts.clusters)}"))
    return findings


def _cluster(facts: Facts, body: Json) -> list[Finding]:
    metadata = body["metadata"]
    check = f"cluster {metadata['namespace']}/{metadata['name']}"
    if facts.running and not _is_run(facts, metadata["namespace"]):
        text = f"no operator runs namespace {metadata['namespace']}"
        return [Finding(check, Level.PROBLEM, text, _watch_too(facts, metadata["namespace"]))]
    edit = f"kubectl edit gdc {metadata['name']} -n {metadata['namespace']}"
    try:
        parse(body)
    except InvalidSpecError as error:
        return [Finding(check, Level.PROBLEM, str(error), f"correct it: {edit}")]
    if words := unseen(body):
        return _unseen(facts, check, words.removesuffix(": is it running?"))
    conditions = (body.get("status") or {}).get("conditions") or []
    bad = [item for item in conditions if item["type"] in _TOLD and item["status"] == "False"]
    return [
        Finding(check, Level.WARNING, f"{item['type']} is False, {item['reason']}: {item.get('message', '')}", edit)
        for item in bad
    ]


def _unseen(facts: Facts, check: str, words: str) -> list[Finding]:
    if facts.deployments is None:
        return [Finding(check, Level.WARNING, words, "let an administrator see whether it runs: gpudask doctor")]
    if not facts.running:
        return []  # the check of the operator says so
    home = facts.running[0]["metadata"]
    return [Finding(check, Level.WARNING, words, f"kubectl logs deployment/{home['name']} -n {home['namespace']}")]


def _is_run(facts: Facts, namespace: str) -> bool:
    return any(name in ("", namespace) for item in facts.running for name in watched(item))


def _watch_too(facts: Facts, namespace: str) -> str:
    """How the first operator is told to run `namespace` as well."""
    item = facts.running[0]
    release, home = labels(item).get("app.kubernetes.io/instance", "gpudask"), item["metadata"]["namespace"]
    names = ",".join([*watched(item), namespace])
    return f"helm upgrade {release} charts/gpudask -n {home} --reuse-values --set 'watchNamespaces={{{names}}}'"
