"""Checks of the clusters that are there, and of their pools. Pure.

An operator runs their namespace, and has looked at them; and the very pods that it would make are held to the nodes.
"""

from __future__ import annotations

from gpudask.api import Json
from gpudask.api.base import number
from gpudask.api.reasons import Reason
from gpudask.api.resource import Cluster, InvalidSpecError, parse
from gpudask.cli.doctor import gpus
from gpudask.cli.doctor.facts import DEFAULT_IMAGE, Facts, Finding, Level, labels, setting, upgrade, watched
from gpudask.desired.workers import worker_pod
from gpudask.kubecluster.errors import not_observed

_REPORTED = ("Accepted", "Mirrored")
_OF_A_QUOTA = "exceeded quota"  # the API server's words
_BLOCKING = ("NoSchedule", "NoExecute")
_CORDONED, _AWAY = (
    "node.kubernetes.io/unschedulable",
    ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
)
_AUTOSCALERS = ("cluster-autoscaler", "karpenter")


def clusters(facts: Facts) -> list[Finding]:
    """Check that an operator runs each cluster as it is meant, and would run one in the own namespace."""
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
    if reason := not_observed(body):
        return _not_observed(facts, check, reason.removesuffix(": is it running?"))
    conditions = (body.get("status") or {}).get("conditions") or []
    bad = [item for item in conditions if item["type"] in _REPORTED and item["status"] == "False"]
    return [
        Finding(check, Level.WARNING, f"{item['type']} is False, {item['reason']}: {item.get('message', '')}", edit)
        for item in bad
    ]


def images(facts: Facts) -> list[Finding]:
    """Check that the images of clusters can be pulled, as far as Kubernetes has tried: the operator's default first."""
    check = "images"
    findings = [_not_pulled(facts, check, body) for body in facts.clusters or [] if _pull_failure(body)]
    if findings or not facts.running:
        return findings
    for item in facts.running:
        if image := setting(item, DEFAULT_IMAGE):
            nodes = [name for node in facts.nodes or [] for name in [node["metadata"]["name"]] if _has(node, image)]
            there = f"on {len(nodes)} nodes" if nodes else "not pulled yet: the first cluster's pods do that"
            findings.append(Finding(check, Level.OK, f"the default is {image}, {there}"))
        else:
            findings.append(Finding(check, Level.OK, "no default: each cluster names its own (spec.image)"))
    return findings


def _pull_failure(body: Json) -> str:
    """Why the image of a cluster's pods is not pulled, in the operator's words; empty where that is not so."""
    conditions = (body.get("status") or {}).get("conditions") or []
    found = [item for item in conditions if (item["status"], item.get("reason")) == ("True", Reason.IMAGE)]
    return str(found[0].get("message", "without a message")) if found else ""


def _not_pulled(facts: Facts, check: str, body: Json) -> Finding:
    metadata, why = body["metadata"], _pull_failure(body)
    who = f"cluster {metadata['namespace']}/{metadata['name']}"
    operator = next((item for item in facts.running if {"", metadata["namespace"]} & set(watched(item))), None)
    image = setting(operator, DEFAULT_IMAGE) if operator is not None else ""
    if (body.get("spec") or {}).get("image") or not image or operator is None:
        mend = f"correct image or imagePullSecrets: kubectl edit gdc {metadata['name']} -n {metadata['namespace']}"
        return Finding(check, Level.PROBLEM, f"{who}: {why}", mend)
    mend = f"push it to where the nodes pull from (make images), or name another: {upgrade(operator)}"
    return Finding(
        check, Level.PROBLEM, f"{who} has the default image {image}: {why}", f"{mend} --set defaults.image=..."
    )


def _has(node: Json, image: str) -> bool:
    """Whether a node says that it has the image; Kubernetes lists its largest 50."""
    images = (node.get("status") or {}).get("images") or []
    return any(image in (item.get("names") or []) for item in images)


def _not_observed(facts: Facts, check: str, reason: str) -> list[Finding]:
    if facts.deployments is None:
        return [Finding(check, Level.WARNING, reason, "let an administrator see whether it runs: gpudask doctor")]
    if not facts.running:
        return []  # the check of the operator says so
    home = facts.running[0]["metadata"]
    return [Finding(check, Level.WARNING, reason, f"kubectl logs deployment/{home['name']} -n {home['namespace']}")]


def _is_run(facts: Facts, namespace: str) -> bool:
    return any(name in ("", namespace) for item in facts.running for name in watched(item))


def _watch_too(facts: Facts, namespace: str) -> str:
    """The command that lets the first operator run `namespace` as well."""
    item = facts.running[0]
    release, home = labels(item).get("app.kubernetes.io/instance", "gpudask"), item["metadata"]["namespace"]
    names = ",".join([*watched(item), namespace])
    return f"helm upgrade {release} charts/gpudask -n {home} --reuse-values --set 'watchNamespaces={{{names}}}'"


def pools(facts: Facts) -> list[Finding]:
    """Check for each pool of each valid cluster that it has its pods, and that a node could take them."""
    short = [finding for body in facts.clusters or [] for finding in _short(body)]
    if not facts.nodes or not facts.clusters:
        return short
    grower = _grower(facts)
    findings = list(short)
    for body in facts.clusters:
        try:
            cluster = parse(body)
        except InvalidSpecError:
            continue  # the check of clusters says so
        for pool in cluster.spec.pools:
            findings += _pool(cluster, pool.name, facts.nodes, grower)
    if not findings:
        findings.append(Finding("pools", Level.OK, "for each pool there is a node that could take its pods"))
    return findings


def _short(body: Json) -> list[Finding]:
    """The pools that the operator reports as short of pods, with what keeps them."""
    if not_observed(body):
        return []  # what it once said; the check of clusters says so
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    findings = []
    for pool in body["status"].get("pools") or []:
        ready, desired, message = pool.get("ready", 0), pool.get("desired", 0), pool.get("message", "")
        if not message or ready >= desired:
            continue
        mend = f"kubectl describe gdc {name} -n {namespace}"
        if _OF_A_QUOTA in message:
            mend = f"raise the quota, or lower the pool's size: kubectl describe quota -n {namespace}"
        text = f"{ready} of {desired} pods are ready: {message}"
        findings.append(Finding(f"pool {namespace}/{name} {pool['name']}", Level.WARNING, text, mend))
    return findings


def _pool(cluster: Cluster, name: str, there: list[Json], grower: str) -> list[Finding]:
    pool = next(item for item in cluster.spec.pools if item.name == name)
    check = f"pool {cluster.key} {name}"
    try:
        spec = worker_pod(cluster, pool, 0, "xxxxx")["spec"]
        _asked(spec)
    except ValueError as error:
        mend = f"correct the template: kubectl edit gdc {cluster.name} -n {cluster.namespace}"
        return [Finding(check, Level.PROBLEM, f"no pod can be made of its template: {error}", mend)]
    left = there
    for look in (_found_by_labels, _let_in, _large_enough):
        left, text, mend = look(spec, left)
        if not left and grower:
            return [Finding(check, Level.OK, f"{text}; {grower} may add a node that takes it")]
        if not left:
            return [Finding(check, Level.WARNING, text, mend)]
    return []


def _found_by_labels(spec: Json, there: list[Json]) -> tuple[list[Json], str, str]:
    selector = spec.get("nodeSelector") or {}
    matching = [node for node in there if selector.items() <= labels(node).items()]
    wanted = ", ".join(f"{key}={value}" for key, value in selector.items())
    mend = f"kubectl label node NAME {wanted.replace(',', '')}, or set gpu.nodeSelector or the template's"
    return matching, f"no node has the labels {wanted}", f"{mend}; an autoscaler may add such nodes"


def _let_in(spec: Json, there: list[Json]) -> tuple[list[Json], str, str]:
    """Those without a taint that the pods do not tolerate."""
    tolerations = spec.get("tolerations") or []
    blockers = {node["metadata"]["name"]: _blockers(node, tolerations) for node in there}
    taints = {item["key"]: gpus.taint(item) for found in blockers.values() for item in found}
    text = f"all its nodes have taints that it does not tolerate: {', '.join(sorted(taints.values()))}"
    mend = "tolerate them: template: {spec: {tolerations: [{key: ..., operator: Exists}]}}"
    if _CORDONED in taints:
        mend = f"kubectl uncordon {next(name for name, found in blockers.items() if found)}"
    if any(key in taints for key in _AWAY):
        mend = f"kubectl describe node {next(name for name, found in blockers.items() if found)}"
    return [node for node in there if not blockers[node["metadata"]["name"]]], text, mend


def _large_enough(spec: Json, there: list[Json]) -> tuple[list[Json], str, str]:
    """Those with room for a pod, if nothing else ran there."""
    asked = _asked(spec)
    left = [
        node for node in there if all(number(_room(node).get(name, 0)) >= most for name, (most, _) in asked.items())
    ]
    text = "no node of it has room for all that a pod asks for"
    for name, (most, quantity) in asked.items():
        largest = max((_room(node).get(name, 0) for node in there), key=number, default=0)
        if number(largest) < most:
            text = f"a pod wants {quantity} of {name}, no node of it offers more than {largest}"
    gpu = any(gpus.is_gpu(name) for name in asked)
    mend = "lower the pool's resources" + (" or gpu.count, correct gpu.resourceName" if gpu else "")
    return left, text, f"{mend}, or add larger nodes"


def _asked(spec: Json) -> dict[str, tuple[float, str]]:
    """The sum that the pod's containers ask for of each resource, as a number and as text."""
    asked: dict[str, tuple[float, str]] = {}
    for container in spec["containers"]:
        resources = container.get("resources") or {}
        for name, quantity in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            before = asked.get(name)
            most = number(quantity) + (before[0] if before else 0)
            asked[name] = most, f"{most:g}" if before else str(quantity)
    return asked


def _room(node: Json) -> Json:
    return (node.get("status") or {}).get("allocatable") or {}


def _grower(facts: Facts) -> str:
    """The node autoscaler, if it can be seen; a cloud's own cannot."""
    for item in facts.deployments or []:
        if any(name in item["metadata"]["name"] for name in _AUTOSCALERS):
            return str(item["metadata"]["name"])
    return ""


def _blockers(node: Json, tolerations: list[Json]) -> list[Json]:
    """The taints of a node that keep a pod with these tolerations away."""
    taints = [item for item in (node.get("spec") or {}).get("taints") or [] if item.get("effect") in _BLOCKING]
    return [item for item in taints if not any(_tolerates(toleration, item) for toleration in tolerations)]


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
