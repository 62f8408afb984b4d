"""The one error type of the client, and the reasons that it gives. Pure.

Its three kinds are also what Dask and the stock client raise there, so that `except TimeoutError` goes on working.

A reason is the operator's message in a cluster's status, or Kubernetes' own on a pod.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from gpudask.api import Json
from gpudask.api.image_pull import is_final, is_pull_failure, short_message
from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.resource import JOB_KIND, KIND, is_past

SILENT = "the operator has reported nothing yet: is it running?"
OUTDATED = "its status calls the scheduler ready, but none is: the operator has not looked since, is it running?"
OPERATOR_STEP = (
    "See whether the operator runs: kubectl get pods -A -l app.kubernetes.io/name=gpudask, or gpudask doctor"
)

IMAGE_STEP = (
    "Write image= with one that the nodes can pull, or set DASK_GPUDASK__IMAGE for every cluster; an image of a private"
    " registry takes imagePullSecrets in the template"
)

DEFINITION_STEP = "kubectl apply --server-side --force-conflicts -f charts/gpudask/crds"
_UNKNOWN_FIELD = re.compile(r'unknown field "(spec\.[^"]+)"|\.(spec\.\S+): field not declared in schema')
_REQUIRED_FIELD = re.compile(r"\b(spec\.[\w.\[\]]+): Required value")


class KubeClusterError(RuntimeError):
    """An operation that failed: what did not work, the reason, and the next step.

    Attributes:
        reason: why, as whoever said it put it (the API server, the operator's status).
        next_step: what to write or type instead.
        status: the API server's HTTP status, 0 where it was not asked or did not answer.
        unanswered: it was asked, and did not answer.
    """

    def __init__(self, what: str, *, reason: str, next_step: str, status: int = 0, unanswered: bool = False) -> None:
        super().__init__(f"{what}: {reason.rstrip('.')}. {next_step}")
        self.reason = reason
        self.next_step = next_step
        self.status = status
        self.unanswered = unanswered

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy it by what it is: Python's way calls `__init__` with the message alone."""
        return _restore, (type(self), self.args), self.__dict__

    @property
    def may_pass(self) -> bool:
        """True if a retry may succeed: the API server was silent, failed (5xx) or is busy (429)."""
        is_passing = self.status == HTTPStatus.TOO_MANY_REQUESTS or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.unanswered or is_passing


def _restore(kind: type[KubeClusterError], arguments: tuple[Any, ...]) -> KubeClusterError:
    # Python wants the `__new__` of the base that has the most fields, which a subclass may have beside this class.
    error: KubeClusterError = (OSError if issubclass(kind, OSError) else RuntimeError).__new__(kind)
    error.args = arguments
    return error


class KubeClusterValueError(KubeClusterError, ValueError):
    """An argument that cannot be used, or a cluster that is there, or is not, against `create_mode`."""


class KubeClusterTypeError(KubeClusterError, TypeError):
    """An argument that there is none of."""


class KubeClusterTimeoutError(KubeClusterError, TimeoutError):
    """A wait that its time limit ended."""


def not_observed(body: Json) -> str:
    """The reason that the operator has not observed the cluster's present generation; empty where it has.

    It does within a second: its messages about an earlier generation are no reason for anything.
    """
    status = body.get("status") or {}
    if not status:
        return SILENT
    wanted, seen = body["metadata"].get("generation", 0), status.get("observedGeneration", 0)
    if seen >= wanted:
        return ""
    return f"the operator has not looked at generation {wanted} of the cluster yet, only at {seen}: is it running?"


def where_to_look(body: Json) -> str:
    """The command that tells more than `why_not_ready`."""
    if not_observed(body):
        return OPERATOR_STEP
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return f"See kubectl describe gdc {name} -n {namespace}"


def why_not_ready(body: Json) -> str:
    """The operator's reason for what is not as it should be."""
    if away := not_observed(body):
        return away
    status = body["status"]
    if bad := _bad_conditions(status):
        return bad
    if status.get("reason"):
        return f"{status.get('phase', '')}, {status['reason']}"
    return "the operator gives no reason"


def why_no_scheduler(body: Json) -> str:
    """The operator's reason why no scheduler is ready, which the operator may not have seen yet."""
    return not_observed(body) or (OUTDATED if _says_ready(body) else why_not_ready(body))


def why_workers_wait(body: Json, pool: str | None) -> str:
    """The reason why workers of `pool` are missing or, where it is None, of the whole cluster."""
    if pool is not None or not_observed(body):
        return why_pool_waits(body, pool) or why_not_ready(body)
    bad = _bad_conditions(body["status"])
    reason = why_pool_waits(body, pool, said=bad)
    return "; ".join(part for part in (bad, reason) if part) if reason else why_not_ready(body)


def why_pool_waits(body: Json, pool: str | None, *, said: str = "") -> str:
    """The operator's reason for the size and the progress of `pool`, or of all where it is None; empty without any.

    What stands in `said` already is left out.
    """
    if away := not_observed(body):
        return away
    pools = [item for item in body["status"].get("pools") or [] if not is_past(item)]
    if pool is None and len(pools) > 1:
        return "; ".join(f"pool {item['name']}: {_size_and_why(item, said)}" for item in pools)
    return next((_size_and_why(item, said) for item in pools if pool in (None, item["name"])), "")


def why_pod_waits(pod: Json) -> str:
    """Kubernetes' reason for a pod that is not ready; empty for one that is."""
    status = pod.get("status", {})
    conditions = {item["type"]: item for item in status.get("conditions", [])}
    placed = conditions.get("PodScheduled", {})
    if placed.get("status") == "False":
        return f"no node can take it: {placed.get('message', placed.get('reason', ''))}"
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = container.get("state", {}).get("waiting")
        if waiting:
            return _why_container_waits(waiting, container)
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    if status.get("phase") == "Running":
        return "it runs, but does not answer yet"
    return str(status.get("message") or status.get("reason") or f"phase {status.get('phase', 'unknown')}")


def refused_pull(body: Json, pods: list[Json]) -> str:
    """The failed pull of the scheduler's image that no further try mends; empty where there is none, or one may.

    Args:
        body: the cluster.
        pods: the scheduler's; empty where they may not be listed.
    """
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or []:
            waiting = container.get("state", {}).get("waiting") or {}
            if is_final(waiting.get("reason", ""), waiting.get("message", "")):
                return _why_container_waits(waiting, container)
    if pods or not_observed(body):
        return ""
    degraded = condition(body, ConditionType.DEGRADED)
    message = str(degraded.get("message", ""))
    is_image = degraded.get("reason") == Reason.IMAGE and message.startswith("scheduler: ")
    return message.removeprefix("scheduler: ") if is_image and is_final("ErrImagePull", message) else ""


def why_not_accepted(body: Json) -> str:
    """The reason why the operator does not act on a cluster as it is written; empty where it does, or did not look."""
    accepted = {} if not_observed(body) else condition(body, ConditionType.ACCEPTED)
    return f"{accepted['reason']}: {accepted.get('message', '')}" if accepted.get("status") == "False" else ""


def condition(body: Json, kind: str) -> Json:
    """One condition of a cluster's status; empty where there is none of that type."""
    listed = (body.get("status") or {}).get("conditions") or []
    return next((item for item in listed if item.get("type") == kind), {})


def waits_for(body: Json, pods: list[Json]) -> list[str]:
    """The reasons why a cluster is not ready, a line each: the scheduler, then each pool that is short of pods."""
    status = body.get("status") or {}
    schedulers = [pod for pod in pods if pod["metadata"]["labels"].get("dask.org/component") == "scheduler"]
    lines = why_scheduler_waits(body, schedulers)
    for item in status.get("pools", []):
        if item.get("ready", 0) < item.get("desired", 0) or item.get("message"):
            lines.append(f"pool {item['name']}: {why_pool_waits(body, item['name'])}")
    return lines


def why_scheduler_waits(body: Json, pods: list[Json]) -> list[str]:
    """The reasons why a scheduler is not ready, a line each; `pods` are the scheduler's alone."""
    lines = []
    if body["spec"].get("suspend"):
        lines.append("the cluster is suspended: resume() starts it")
    elif not pods:
        lines.append(f"scheduler: no pod yet: {why_no_scheduler(body)}")
    return lines + [f"scheduler: {reason}" for pod in pods if (reason := why_pod_waits(pod))]


_FINE_IF_FALSE = ("Degraded", "Leased")  # the second only says when a cluster that nobody uses goes


def _bad_conditions(status: Json) -> str:
    bad = [
        item
        for item in status.get("conditions", [])
        if item["status"] == "False" and item["type"] not in _FINE_IF_FALSE
    ]
    # `Ready` only sums the others up.
    bad = [item for item in bad if item["type"] != "Ready"] or bad
    told: dict[str, str] = {}  # of conditions with one message, the first
    for item in bad:
        message = item.get("message", "")
        told.setdefault(message or item["type"], f"{item['type']} is False, {item['reason']}: {message}")
    return "; ".join(told.values())


def _size_and_why(pool: Json, said: str) -> str:
    parts = [f"{pool.get('ready', 0)} of {pool.get('desired', 0)} desired pods are ready"]
    # A refusal's message ends with since when, which its condition may not have.
    texts = [pool[key] for key in ("message", "reason") if pool.get(key)]
    return ", ".join(parts + [text for text in texts if text.partition("; since ")[0] not in said])


def _why_container_waits(waiting: Json, container: Json) -> str:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if is_pull_failure(reason):
        return short_message(reason, message, container.get("image", ""))
    if reason == "ContainerCreating":
        return f"its node pulls image {container.get('image', '')} or prepares its volumes"
    return f"{reason}: {message}" if message else str(reason)


def _says_ready(body: Json) -> bool:
    return bool(((body.get("status") or {}).get("scheduler") or {}).get("ready"))


# ---------------------------------------------------------------------- a definition that is older


def name_older_definition(error: KubeClusterError, kind: str = KIND) -> KubeClusterError:
    """`error`, or one that names the upgrade where the server refuses only what this program's definition allows.

    That is fields which it does not know, or the absence of one which it requires. `kind`: of what was written, a
    GpuDaskCluster or a GpuDaskJob.
    """
    unknown = [strict or applied for strict, applied in _UNKNOWN_FIELD.findall(error.reason)]
    required = _REQUIRED_FIELD.findall(error.reason)
    if not (unknown or required):
        return error
    spec = _own_spec(kind)
    if not all(_field(spec, field) for field in unknown) or any(_is_required(spec, field) for field in required):
        return error
    fields = ", ".join(dict.fromkeys([*unknown, *required]))
    return KubeClusterError(
        f"the definition of {kind}s on this server is older than this program",
        reason=f"it does not have {fields} as this program writes it ({error.reason})",
        next_step=f"Let an administrator upgrade it, from this version: {DEFINITION_STEP}",
        status=error.status,
    )


def _own_spec(kind: str) -> Json:
    from gpudask.api import crd  # noqa: PLC0415 - the models take long to load

    definition = crd.render_job() if kind == JOB_KIND else crd.render()
    version: Json = definition["spec"]["versions"][0]
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def _field(schema: Json, path: str) -> Json | None:
    """The schema of a field such as `spec.pools[0].gpu`; None where there is none."""
    for part in path.split(".")[1:]:
        name, *indices = part.split("[")
        found = schema.get("properties", {}).get(name)
        for _ in indices:
            found = found.get("items") if found else None
        if found is None:
            return None
        schema = found
    return schema


def _is_required(schema: Json, path: str) -> bool:
    """Whether a field has to be there here, too; so is one that is unknown here."""
    parent, _, name = path.rpartition(".")
    found = _field(schema, parent)
    return found is None or name not in found.get("properties", {}) or name in found.get("required", ())
