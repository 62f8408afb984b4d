"""Checks of our operator: that it runs, in this program's version, alone in its namespaces, with its rights. Pure."""

from __future__ import annotations

from itertools import combinations

from gpudask.api.json_object import Json
from gpudask.cli.doctor.definition import INSTALL
from gpudask.cli.doctor.facts import Facts, Finding, Level, labels, place, watched
from gpudask.kubecluster.errors import why_pod_waits

_CHECK, _RIGHTS = "operator", "operator's rights"
_NAMED = 10


def deployments(facts: Facts, version: str) -> list[Finding]:
    """Whether it runs; `version` is this program's."""
    if facts.deployments is None:
        return [facts.unread(_CHECK, "deployments")]
    if not facts.operators:
        return [Finding(_CHECK, Level.PROBLEM, "no deployment of it in any namespace", INSTALL)]
    return [*(_deployment(facts, item, version) for item in facts.operators), *_rivals(facts.running)]


def rights(facts: Facts) -> list[Finding]:
    """Whether the service accounts of the operators may do what the chart grants."""
    if not facts.running:
        return []
    if facts.operator_may_not is None:
        return [facts.unread(_RIGHTS, "operator_may_not")]
    if not facts.operator_may_not:
        return [Finding(_RIGHTS, Level.OK, "its service account may do all that it needs")]
    verbs: dict[str, list[str]] = {}
    for namespace, right in facts.operator_may_not:
        what = f"{str(right).partition(' ')[2]} in {namespace or 'all namespaces'}"
        verbs.setdefault(what, []).append(right.verb)
    missing = [f"{'/'.join(listed)} {what}" for what, listed in verbs.items()]
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    text = f"its service account may not: {', '.join(missing[:_NAMED])}{more}"
    mend = f"{_upgrade(facts.running[0])} --set rbac.create=true, or apply the roles as charts/README.md shows"
    return [Finding(_RIGHTS, Level.PROBLEM, text, mend)]


def _deployment(facts: Facts, item: Json, version: str) -> Finding:
    where = f"deployment {place(item)}"
    metadata = item["metadata"]
    command = f"deployment/{metadata['name']} -n {metadata['namespace']}"
    if item["spec"].get("replicas", 1) == 0:
        mend = f"kubectl scale {command} --replicas=1"
        return Finding(_CHECK, Level.PROBLEM, f"{where} is scaled to 0: nobody runs the clusters", mend)
    if not (item.get("status") or {}).get("readyReplicas"):
        mend = f"kubectl describe {command}; kubectl logs {command}"
        return Finding(_CHECK, Level.PROBLEM, f"{where} has no pod that is ready: {_why(facts, item)}", mend)
    running = labels(item).get("app.kubernetes.io/version", "")
    if not running:
        mend = f"{_upgrade(item)}, so that it has the chart's labels"
        return Finding(_CHECK, Level.WARNING, f"{where} runs, but does not say in which version", mend)
    if running == version:
        return Finding(_CHECK, Level.OK, f"{where} runs version {running}")
    text = f"{where} runs version {running}, this program is {version}"
    mend = f"pip install --upgrade '.[cli]' from a checkout of {running}"
    if _order(running) < _order(version):
        mend = f"kubectl apply --server-side --force-conflicts -f charts/gpudask/crds, then {_upgrade(item)}"
    return Finding(_CHECK, Level.WARNING, text, mend)


def _why(facts: Facts, item: Json) -> str:
    """Kubernetes' words: of the pods, or of what keeps them from being made."""
    ours = item["spec"]["template"].get("metadata", {}).get("labels") or {}
    pods = [
        pod
        for pod in facts.operator_pods or []
        if pod["metadata"]["namespace"] == item["metadata"]["namespace"] and ours.items() <= labels(pod).items()
    ]
    words = [f"{pod['metadata']['name']}: {why}{_last(pod)}" for pod in pods if (why := why_pod_waits(pod))]
    conditions = (item.get("status") or {}).get("conditions") or []
    failed = [
        one.get("message", "") for one in conditions if (one["type"], one["status"]) == ("ReplicaFailure", "True")
    ]
    unknown = facts.refused.get("operator_pods", "")
    return "; ".join([*words, *failed]) or (f"its pods could not be read: {unknown}" if unknown else "it has no pod")


def _last(pod: Json) -> str:
    """The last line that the container wrote before it ended, where it did."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        lines = str(ended.get("message") or ended.get("reason") or "").strip().splitlines()
        if lines:
            return f"; it said last: {lines[-1]}"
    return ""


def _rivals(running: list[Json]) -> list[Finding]:
    """Operators that run the same namespace: each undoes what the other does."""
    findings = []
    for one, other in combinations(running, 2):
        first, second = set(watched(one)), set(watched(other))
        both = (first | second) - {""} if "" in first | second else first & second
        if both or first == second:
            shared = ", ".join(sorted(both)) or "all namespaces"
            text = f"{place(one)} and {place(other)} both run the clusters of {shared}"
            namespace = other["metadata"]["namespace"]
            mend = f"give each watchNamespaces of its own, or: helm uninstall {_release(other)} -n {namespace}"
            findings.append(Finding(_CHECK, Level.PROBLEM, text, mend))
    return findings


def _upgrade(item: Json) -> str:
    return f"helm upgrade {_release(item)} charts/gpudask -n {item['metadata']['namespace']} --reuse-values"


def _release(item: Json) -> str:
    return str(labels(item).get("app.kubernetes.io/instance", "gpudask"))


def _order(version: str) -> list[int]:
    """The numbers by which versions are compared."""
    return [int(part) for part in version.replace("-", ".").replace("+", ".").split(".") if part.isdecimal()]
