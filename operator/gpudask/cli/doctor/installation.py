"""Checks of what is installed: our CRD, field by field, our operator, the stock Dask operator, and the mirror. Pure.

The stock operator and the mirror both have the kinds of `kubernetes.dask.org`. Whose they are is told by a category
that our chart gives them, as the chart and the operator tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

from gpudask.api import Json, crd
from gpudask.api.resource import CRON_JOB_PLURAL, JOB_PLURAL, RECORD_PLURAL, VERSION
from gpudask.api.resource import GROUP as GPUDASK
from gpudask.cli.doctor.facts import (
    CRD,
    Facts,
    Finding,
    Level,
    keeps_history,
    labels,
    mirrors,
    place,
    release,
    upgrade,
    watched,
)
from gpudask.cli.doctor.rights import CLEAN_UP, HISTORY
from gpudask.kubecluster.errors import why_pod_waits
from gpudask.mirror.objects import GROUP, KINDS

_DEFINITION = "resource definition"
_NAMED_FIELDS = 3
_MISSING, _UNKNOWN, _CHANGED = "missing", "unknown", "changed"
_INSTALL = (
    "helm install gpudask charts/gpudask -n gpudask-system --create-namespace --set image.repository=..."
    " --set defaults.image=..."
)
_APPLY_DEFINITION = "kubectl apply --server-side --force-conflicts -f charts/gpudask/crds"
_JOBS: dict[str, tuple[Callable[[], Json], str]] = {
    JOB_PLURAL: (crd.render_job, "`gpudask run` and GpuDaskJobs need it"),
    CRON_JOB_PLURAL: (crd.render_cron_job, "GpuDaskCronJobs need it"),
}
_NEWER_PROGRAM = "pip install --upgrade '.[cli,image]' from a checkout of the installed version"
_REWRITE = "kubectl get gdc -A -o json | kubectl replace -f -, then take the old one out of status.storedVersions"
_OPERATOR, _RIGHTS = "operator", "operator's rights"
_NAMED_RIGHTS = 10
_STOCK, _MIRROR = "stock Dask operator", "mirror"
_NAME = "dask-kubernetes-operator"


def definition(facts: Facts) -> list[Finding]:
    """Check that the resource can be used, and by this program."""
    if facts.crd is None:
        return [_from_discovery(facts)]
    if not facts.crd:
        return [Finding(_DEFINITION, Level.PROBLEM, f"{CRD} is not installed", _INSTALL)]
    versions = {item["name"]: item for item in facts.crd["spec"]["versions"]}
    served = [name for name, item in versions.items() if item.get("served")]
    if VERSION not in served:
        text = f"{CRD} serves {', '.join(served) or 'no version'}, this program speaks {VERSION}"
        return [Finding(_DEFINITION, Level.PROBLEM, text, f"{_APPLY_DEFINITION}; or {_NEWER_PROGRAM}")]
    if broken := _condition(facts.crd):
        return [Finding(_DEFINITION, Level.PROBLEM, broken, f"see kubectl describe crd {CRD}")]
    own = _own_schema(crd.render)
    return [_schema(CRD, versions[VERSION]["schema"], own), *_stored(facts.crd)]


@cache
def _own_schema(render: Callable[[], Json]) -> Json:
    """This program's schema in the definition that `render` makes, which takes 30 ms; to be read only."""
    schema: Json = render()["spec"]["versions"][0]["schema"]
    return schema


def jobs(facts: Facts) -> list[Finding]:
    """Check that jobs and cron jobs can be made as this program has them; what an older definition lacks is lost."""
    found = []
    for plural, there in (facts.job_definitions or {}).items() if facts.served else ():
        render, needs_it = _JOBS[plural]
        name = f"{plural}.{GPUDASK}"
        served = {item["name"]: item for item in there["spec"]["versions"]} if there else {}
        if VERSION in served:
            found.append(_schema(name, served[VERSION]["schema"], _own_schema(render)))
        else:
            text = f"{name} is not installed: {needs_it}"
            found.append(Finding(_DEFINITION, Level.WARNING, text, _APPLY_DEFINITION))
    return [finding for finding in found if finding.level != Level.OK]


def records(facts: Facts) -> list[Finding]:
    """Check that what becomes of clusters can be kept, where an operator is to keep it."""
    if not any(keeps_history(item) for item in facts.running) or facts.records_served is not False:
        return []
    text = f"{RECORD_PLURAL}.{GPUDASK} is not installed: clusters that end leave no record"
    return [Finding("records", Level.WARNING, text, _APPLY_DEFINITION)]


def _from_discovery(facts: Facts) -> Finding:
    """The finding that everybody may have, where the definition itself may not be read."""
    if facts.served is None:
        return facts.unread(_DEFINITION, "crd")
    if not facts.served:
        return Finding(_DEFINITION, Level.PROBLEM, f"the server knows no {CRD} of version {VERSION}", _INSTALL)
    return Finding(_DEFINITION, Level.OK, f"{CRD} serves {VERSION}; its schema is for administrators to read")


def _condition(definition: Json) -> str:
    """The server's reason why a definition cannot be used; empty where it can."""
    conditions = {item["type"]: item for item in (definition.get("status") or {}).get("conditions") or []}
    if conditions.get("Terminating", {}).get("status") == "True":
        return f"{CRD} is being deleted, and all clusters with it"
    for kind in ("NamesAccepted", "Established"):
        found = conditions.get(kind, {})
        if found.get("status") == "False" or (kind == "Established" and not found):
            message = found.get("message", "without a message")
            return f"{CRD} is not {'established' if kind == 'Established' else 'known by its names'}: {message}"
    return ""


def _schema(name: str, there: Json, ours: Json) -> Finding:
    found = sorted(set(_differences(there, ours)))
    missing, unknown = ([path for what, path in found if what == wanted] for wanted in (_MISSING, _UNKNOWN))
    if not found:
        return Finding(_DEFINITION, Level.OK, f"{name} serves {VERSION}, with this version's schema")
    if unknown and not missing:
        text = f"{name} is newer than this program, which does not know: {_listed(unknown)}"
        return Finding(_DEFINITION, Level.WARNING, text, _NEWER_PROGRAM)
    if missing and not unknown:
        text = f"{name} is older than this program: it lacks {_listed(missing)}"
        return Finding(_DEFINITION, Level.WARNING, text, _APPLY_DEFINITION)
    text = f"{name} has another schema than this version: {_listed([path for _, path in found])}"
    return Finding(
        _DEFINITION,
        Level.WARNING,
        text,
        f"if this program is the newer one: {_APPLY_DEFINITION}; else {_NEWER_PROGRAM}",
    )


def _stored(definition: Json) -> list[Finding]:
    stored = (definition.get("status") or {}).get("storedVersions") or []
    wanted = next((item["name"] for item in definition["spec"]["versions"] if item.get("storage")), VERSION)
    old = [name for name in stored if name != wanted]
    if not old:
        return []
    text = f"clusters may still be stored as {', '.join(old)}, new ones are as {wanted}"
    return [Finding(_DEFINITION, Level.WARNING, text, _REWRITE)]


def _listed(named: list[str]) -> str:
    return ", ".join(named[:_NAMED_FIELDS]) + (
        f" and {len(named) - _NAMED_FIELDS} more" if len(named) > _NAMED_FIELDS else ""
    )


def _differences(there: Json, here: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Fields that the server misses, that we do not know, or that differ, each with its path."""
    for key in {*there, *here} - {"properties"}:
        inner = there.get(key), here.get(key)
        if key in ("items", "openAPIV3Schema") and isinstance(inner[0], dict) and isinstance(inner[1], dict):
            yield from _differences(inner[0], inner[1], path)
        elif inner[0] != inner[1]:
            yield _CHANGED, path or "the whole"
    fields = there.get("properties", {}), here.get("properties", {})
    for name in {*fields[0], *fields[1]}:
        below = f"{path}.{name}" if path else name
        if name in fields[0] and name in fields[1]:
            yield from _differences(fields[0][name], fields[1][name], below)
        else:
            yield (_UNKNOWN if name in fields[0] else _MISSING), below


def deployments(facts: Facts, version: str) -> list[Finding]:
    """Check that the operator runs; `version` is this program's."""
    if facts.deployments is None:
        return [facts.unread(_OPERATOR, "deployments")]
    if not facts.operators:
        return [Finding(_OPERATOR, Level.PROBLEM, "no deployment of it in any namespace", _INSTALL)]
    found = [
        replace(_deployment(facts, item, version), version=labels(item).get("app.kubernetes.io/version", ""))
        for item in facts.operators
    ]
    return [*found, *_rivals(facts.running)]


def rights(facts: Facts) -> list[Finding]:
    """Check that the service accounts of the operators may do what the chart grants."""
    if not facts.running:
        return []
    if facts.operator_may_not is None:
        return [facts.unread(_RIGHTS, "operator_may_not")]
    if not facts.operator_may_not:
        return [Finding(_RIGHTS, Level.OK, "its service account may do all that it needs")]
    if {right for _, right in facts.operator_may_not} <= set(CLEAN_UP):
        text = "it may delete no cluster: those whose program was killed, or that ask for it otherwise, stay"
        return [Finding(_RIGHTS, Level.WARNING, text, f"{upgrade(facts.running[0])} --set deleteAfter=true")]
    if {right for _, right in facts.operator_may_not} <= set(HISTORY):
        text = "it may not write records, or read logs: clusters that end leave no record, or one without logs"
        return [Finding(_RIGHTS, Level.WARNING, text, f"{upgrade(facts.running[0])} --set history.enabled=true")]
    verbs: dict[str, list[str]] = {}
    for namespace, right in facts.operator_may_not:
        what = f"{str(right).partition(' ')[2]} in {namespace or 'all namespaces'}"
        verbs.setdefault(what, []).append(right.verb)
    missing = [f"{'/'.join(listed)} {what}" for what, listed in verbs.items()]
    more = f" and {len(missing) - _NAMED_RIGHTS} more" if len(missing) > _NAMED_RIGHTS else ""
    text = f"its service account may not: {', '.join(missing[:_NAMED_RIGHTS])}{more}"
    mend = f"{upgrade(facts.running[0])} --set rbac.create=true, or apply the roles as charts/README.md shows"
    return [Finding(_RIGHTS, Level.PROBLEM, text, mend)]


def _deployment(facts: Facts, item: Json, version: str) -> Finding:
    where = f"deployment {place(item)}"
    metadata = item["metadata"]
    command = f"deployment/{metadata['name']} -n {metadata['namespace']}"
    if item["spec"].get("replicas", 1) == 0:
        mend = f"kubectl scale {command} --replicas=1"
        return Finding(_OPERATOR, Level.PROBLEM, f"{where} is scaled to 0: nobody runs the clusters", mend)
    if not (item.get("status") or {}).get("readyReplicas"):
        mend = f"kubectl describe {command}; kubectl logs {command}"
        return Finding(_OPERATOR, Level.PROBLEM, f"{where} has no pod that is ready: {_why(facts, item)}", mend)
    running = labels(item).get("app.kubernetes.io/version", "")
    if not running:
        mend = f"{upgrade(item)}, so that it has the chart's labels"
        return Finding(_OPERATOR, Level.WARNING, f"{where} runs, but does not say in which version", mend)
    if running == version:
        return Finding(_OPERATOR, Level.OK, f"{where} runs version {running}")
    text = f"{where} runs version {running}, this program is {version}"
    mend = f"pip install --upgrade '.[cli,image]' from a checkout of {running}"
    if _order(running) < _order(version):
        mend = f"kubectl apply --server-side --force-conflicts -f charts/gpudask/crds, then {upgrade(item)}"
    return Finding(_OPERATOR, Level.WARNING, text, mend)


def _why(facts: Facts, item: Json) -> str:
    """Kubernetes' reason: that of the pods, or of what keeps them from being made."""
    ours = item["spec"]["template"].get("metadata", {}).get("labels") or {}
    pods = [
        pod
        for pod in facts.operator_pods or []
        if pod["metadata"]["namespace"] == item["metadata"]["namespace"] and ours.items() <= labels(pod).items()
    ]
    reasons = [f"{pod['metadata']['name']}: {why}{_last_log_line(pod)}" for pod in pods if (why := why_pod_waits(pod))]
    conditions = (item.get("status") or {}).get("conditions") or []
    failed = [
        one.get("message", "") for one in conditions if (one["type"], one["status"]) == ("ReplicaFailure", "True")
    ]
    unknown = facts.refused.get("operator_pods", "")
    return "; ".join([*reasons, *failed]) or (f"its pods could not be read: {unknown}" if unknown else "it has no pod")


def _last_log_line(pod: Json) -> str:
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
            mend = f"give each watchNamespaces of its own, or: helm uninstall {release(other)} -n {namespace}"
            findings.append(Finding(_OPERATOR, Level.PROBLEM, text, mend))
    return findings


def _order(version: str) -> list[int]:
    """The numbers by which versions are compared."""
    return [int(part) for part in version.replace("-", ".").replace("+", ".").split(".") if part.isdecimal()]


def stock_operator(facts: Facts) -> list[Finding]:
    """Check whether the stock operator runs. It may, beside ours, where ours mirrors nothing."""
    if facts.dask_kinds is not None and not facts.foreign_kinds and not _running_stock(facts):
        return [Finding(_STOCK, Level.OK, "it is not installed")]
    if facts.deployments is None:
        return [facts.unread(_STOCK, "deployments")]
    if stock := _running_stock(facts):
        where = ", ".join(place(item) for item in stock)
        return [Finding(_STOCK, Level.OK, f"it runs beside this one, with kinds of its own: {where}")]
    if facts.dask_kinds is None:
        return [facts.unread(_STOCK, "dask_kinds")]
    return [Finding(_STOCK, Level.OK, "it does not run; its resource definitions are still installed")]


def mirror(facts: Facts) -> list[Finding]:
    """Check that the mirror for the stock Dask client can work, where it is switched on."""
    on = [item for item in facts.running if mirrors(item)]
    if not on:
        return _of_one_that_is_off(facts)
    if facts.dask_kinds is None:
        return [facts.unread(_MIRROR, "dask_kinds")]
    off = f"{upgrade(on[0])} --set mirror.enabled=false"
    if stock := _running_stock(facts):
        where = ", ".join(place(item) for item in stock)
        text = f"it is on, but the stock Dask operator runs too ({where}), and both write {GROUP}"
        return [Finding(_MIRROR, Level.PROBLEM, text, f"{off}, or remove the stock operator")]
    if missing := [kind for kind in KINDS if kind not in facts.dask_kinds]:
        mend = "kubectl apply --server-side -f crds/mirror.yaml"
        return [Finding(_MIRROR, Level.PROBLEM, f"it is on, but {', '.join(missing)} of {GROUP} are missing", mend)]
    if foreign := facts.foreign_kinds:
        text = f"it is on, but {', '.join(foreign)} of {GROUP} are the stock Dask operator's"
        mend = f"kubectl replace -f crds/mirror.yaml (which keeps all that is of them), or {off}"
        return [Finding(_MIRROR, Level.PROBLEM, text, mend)]
    return [Finding(_MIRROR, Level.OK, "on: the stock Dask client sees each cluster")]


def _of_one_that_is_off(facts: Facts) -> list[Finding]:
    ours = [kind for kind in facts.dask_kinds or {} if kind not in facts.foreign_kinds]
    if ours and _running_stock(facts):
        listed = ", ".join(sorted(ours))
        text = f"off, but {listed} of {GROUP} are still our chart's, and the stock operator runs on them"
        mend = "install its own definitions: helm upgrade of the stock chart, or kubectl apply -f its crds"
        return [Finding(_MIRROR, Level.WARNING, text, mend)]
    if ours:
        text = "off; the definitions that our chart once installed for it are kept, and do no harm"
        return [Finding(_MIRROR, Level.OK, text)]
    return []


def _running_stock(facts: Facts) -> list[Json]:
    """The deployments of the stock operator, by its chart's label or by its image."""
    return [
        item
        for item in facts.deployments or []
        if item["spec"].get("replicas", 1) != 0
        and (labels(item).get("app.kubernetes.io/name") == _NAME or any(_NAME in image for image in _images(item)))
    ]


def _images(item: Json) -> list[str]:
    return [str(container.get("image", "")) for container in item["spec"]["template"]["spec"]["containers"]]
