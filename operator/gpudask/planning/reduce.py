"""Objects of the API server, reduced to the few fields that a pass reads."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

from gpudask.api import resource
from gpudask.desired.markers import MARKERS
from gpudask.desired.pod import MAIN_CONTAINER
from gpudask.planning.observed import Ended, Pod, Retirement

Json = dict[str, Any]
# The kubelet's reasons for pods that it ends, or rejects, because of their node: it shuts down, as a spot node does, or
# is lost, or a critical pod needs the room.
_PREEMPTIONS = frozenset({"Terminated", "NodeShutdown", "Shutdown", "NodeLost", "Preempting", "Preempted"})
_NODE_PRESSURE = "The node "  # "was low on resource: ...", "had condition: [...]"


def owner_uid(metadata: Json) -> str:
    """The uid of the GpuDaskCluster that controls an object, empty where none does."""
    for reference in metadata.get("ownerReferences", ()):
        if reference.get("kind") == resource.KIND and reference.get("controller"):
            return str(reference["uid"])
    return ""


def observe_pod(body: Json) -> Pod:
    """A pod of the API server, reduced."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    container = _main(status.get("containerStatuses", ()))
    scheduled = conditions.get("PodScheduled", {})
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        namespace=sys.intern(metadata["namespace"]),  # as all that many pods share
        owner=sys.intern(owner_uid(metadata)),
        version=metadata["resourceVersion"],
        pool=sys.intern(labels.get(resource.LABEL_POOL, "")),
        dask_name=annotations.get(resource.ANNOTATION_DASK_NAME, ""),
        spec_hash=sys.intern(annotations.get(resource.ANNOTATION_SPEC_HASH, "")),
        phase=sys.intern(status.get("phase", "Pending")),
        ready=conditions.get("Ready", {}).get("status") == "True",
        started=_time(container.get("state", {}).get("running", {}).get("startedAt")),
        node=sys.intern(spec.get("nodeName", "")),
        placed=_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else 0.0,
        ip=status.get("podIP", ""),
        created=_time(metadata.get("creationTimestamp")),
        delete_by=_time(metadata.get("deletionTimestamp")),
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
        waiting=_waiting(container),
        restarts=container.get("restartCount", 0),
        ended=_ended(container, status),
        retirement=_retirement(annotations.get(resource.ANNOTATION_RETIRE)),
        gpus=_count(annotations.get(resource.ANNOTATION_GPUS)),
        serves=bool(labels.get(resource.LABEL_SERVES)),
        preempted=_preempted(status, conditions.get("DisruptionTarget", {})),
        marks=tuple(sys.intern(annotations.get(name, "")) for name in MARKERS),
    )


def _main(statuses: Any) -> Json:
    return next((item for item in statuses if item["name"] == MAIN_CONTAINER), {})


def _waiting(container: Json) -> str:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if not reason or reason in ("ContainerCreating", "PodInitializing"):
        return ""
    return f"{reason}: {waiting.get('message', '')}".rstrip(": ")


def _ended(container: Json, status: Json) -> Ended | None:
    ended = container.get("lastState", {}).get("terminated") or container.get("state", {}).get("terminated")
    if ended:
        at = _time(ended.get("finishedAt"))
        return Ended(ended.get("reason", ""), ended.get("exitCode", 0), ended.get("message", "")[-1024:], at)
    if status.get("phase") == "Failed":
        return Ended(status.get("reason", ""), 0, status.get("message", "")[-1024:])
    return None


def _preempted(status: Json, disruption: Json) -> bool:
    """Whether a pod was ended for its node's or another pod's sake.

    The kubelet's evictions carry the condition DisruptionTarget, but for those of a pod that exceeded a limit of its
    own: its successor would too. Kubelets before Kubernetes 1.26 say the same in their message only.
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    """
    if disruption.get("status") == "True":
        return True
    reason, message = status.get("reason"), status.get("message") or ""
    if reason == "Evicted":
        return str(message).startswith(_NODE_PRESSURE)
    return reason in _PREEMPTIONS


def _retirement(text: str | None) -> Retirement | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
        return Retirement(
            str(value["why"]),
            bool(value["ifIdle"]),
            bool(value["release"]),
            bool(value.get("final", False)),
            float(value.get("at", 0.0)),
        )
    except (ValueError, KeyError, TypeError):
        return Retirement("asked for by annotation")


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0
