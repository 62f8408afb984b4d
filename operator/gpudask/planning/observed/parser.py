"""Objects of the API server, reduced to the few fields that a pass reads.

All of it is hostile input: who may write in a namespace writes what stands there, annotations and owner references
above all. Whatever JSON comes, each function here returns a value, or raises `fields.UnreadableError`; and what it
returns is small. An annotation of ours with nonsense in it is as good as none: the pod runs all the same, and one that
is not counted would be made a second time.
"""

from __future__ import annotations

import ipaddress
import json
import math
import sys
from typing import Any, get_args

from gpudask.api import Json, resource
from gpudask.api.image_pull import is_pull_failure, short_message
from gpudask.api.spec import Protocol
from gpudask.api.untrusted_text import quote
from gpudask.desired.disruption import EVICTION_ANNOTATIONS
from gpudask.desired.pod import MAIN_CONTAINER
from gpudask.desired.scheduler import PRELOAD_VOLUME, MadeWith
from gpudask.planning.observed import fields
from gpudask.planning.observed.fields import TEXT_LENGTH
from gpudask.planning.observed.pods import Ended, Pod, Retirement

_LABEL_LENGTH = 63
_RETIREMENT_LENGTH = 4096  # of the annotation's text: ours has some 200 characters
_GPU_DIGITS = 4
_IMAGE_LENGTH = 512  # as in the spec
_MADE_WITH_LENGTH = 8192  # of the annotation's text: two images, in which a character may take six
_PULL_LENGTH = 8192  # of the message of a failed pull, whose cause stands at its end
_FINALIZERS = 4  # of a pod, so many are kept
_BY_ANNOTATION = Retirement("asked for by annotation")
# The kubelet's reasons for pods that it ends, or rejects, because of their node: it shuts down, as a spot node does, or
# is lost, or a critical pod needs the room.
_PREEMPTIONS = frozenset({"Terminated", "NodeShutdown", "Shutdown", "NodeLost", "Preempting", "Preempted"})
_NODE_PRESSURE = "The node "  # "was low on resource: ...", "had condition: [...]"


def owner_key(metadata: Json, kind: str = resource.KIND) -> str:
    """The `Identity.owner_key` of the GpuDaskCluster, or what `kind` says, that controls an object; empty for none.

    An owner is in the object's own namespace. So a reference in another namespace to a cluster of this one, by the uid
    that everybody can read in its pods' labels, names no cluster that exists.
    """
    controllers = [item for item in fields.items(metadata, "ownerReferences") if item.get("controller") is True]
    if len(controllers) != 1:
        return ""
    (reference,) = controllers
    group, slash, _ = fields.text(reference, "apiVersion").partition("/")
    if not slash or group != resource.GROUP or reference.get("kind") != kind:
        return ""
    return resource.owner_key(fields.identifier(metadata, "namespace"), fields.identifier(reference, "uid"))


def parse_pod(body: Json) -> Pod:
    """A pod of the API server, reduced.

    Raises:
        UnreadableError: it has not the shape of a pod.
    """
    metadata, spec, status = (fields.mapping(body, part) for part in ("metadata", "spec", "status"))
    labels, annotations = fields.mapping(metadata, "labels"), fields.mapping(metadata, "annotations")
    conditions = {fields.text(item, "type"): item for item in fields.items(status, "conditions")}
    container = _main(fields.items(status, "containerStatuses"))
    scheduled = conditions.get("PodScheduled", {})
    created = fields.time(metadata, "creationTimestamp")
    placed = fields.time(scheduled, "lastTransitionTime") if scheduled.get("status") == "True" else 0.0
    unschedulable = scheduled.get("reason") == "Unschedulable"
    return Pod(
        uid=fields.identifier(metadata, "uid"),
        name=fields.identifier(metadata, "name"),
        namespace=sys.intern(fields.identifier(metadata, "namespace")),  # as all that many pods share
        owner=sys.intern(owner_key(metadata)),
        version=fields.version(metadata),
        pool=sys.intern(fields.text(labels, resource.LABEL_POOL, _LABEL_LENGTH)),
        dask_name=fields.text(annotations, resource.ANNOTATION_DASK_NAME),
        spec_hash=sys.intern(fields.text(annotations, resource.ANNOTATION_SPEC_HASH, _LABEL_LENGTH)),
        phase=sys.intern(fields.text(status, "phase", _LABEL_LENGTH) or "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        started=_started(container, created),
        node=sys.intern(fields.text(spec, "nodeName")),
        placed=placed,
        ip=_ip(fields.text(status, "podIP", _LABEL_LENGTH)),
        created=created,
        delete_by=fields.time(metadata, "deletionTimestamp"),
        grace_seconds=float(max(0, fields.number(metadata, "deletionGracePeriodSeconds") or 0)),
        unschedulable=fields.text(scheduled, "message", TEXT_LENGTH) if unschedulable else "",
        waiting=_waiting(container),
        restarts=fields.number(container, "restartCount") or 0,
        ended=_ended(container, status),
        finished_at=_finished_at(metadata, status),
        retirement=_retirement(annotations.get(resource.ANNOTATION_RETIRE)),
        gpus=_count(annotations.get(resource.ANNOTATION_GPUS)),
        made_with=_made_with(annotations.get(resource.ANNOTATION_MADE_WITH)),
        serves=bool(labels.get(resource.LABEL_SERVES)),
        preload=sys.intern(_preload(spec)),
        preempted=_preempted(status, conditions.get("DisruptionTarget", {})),
        disruption=_disruption(conditions.get("DisruptionTarget", {})),
        status_reason=sys.intern(fields.text(status, "reason", _LABEL_LENGTH)),
        status_message=_end_of(status),
        finalizers=tuple(sys.intern(item) for item in fields.strings(metadata, "finalizers")[:_FINALIZERS]),
        eviction_annotations=tuple(
            sys.intern(fields.text(annotations, name, _LABEL_LENGTH)) for name in EVICTION_ANNOTATIONS
        ),
    )


def _preload(spec: Json) -> str:
    """The name of the ConfigMap with the preload that a pod mounts; empty where it mounts none."""
    volume = next((item for item in fields.items(spec, "volumes") if item.get("name") == PRELOAD_VOLUME), {})
    return fields.text(fields.mapping(volume, "configMap"), "name")


def _ip(text: str) -> str:
    """An address, IPv4 or IPv6, as it is written; empty where it is none: it becomes part of a URL."""
    try:
        return "" if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _main(statuses: list[Json]) -> Json:
    return next((item for item in statuses if item.get("name") == MAIN_CONTAINER), {})


def _started(container: Json, created: float) -> float:
    """The start of the main container, 0.0 where it does not run. One without a time of its start runs all the same."""
    running = fields.mapping(container, "state").get("running")
    if running is None:
        return 0.0
    return fields.time(fields.mapping(container["state"], "running"), "startedAt") or fields.bounded_time(created)


def _waiting(container: Json) -> str:
    waiting = fields.mapping(fields.mapping(container, "state"), "waiting")
    reason = fields.text(waiting, "reason")
    if not reason or reason in ("ContainerCreating", "PodInitializing"):
        return ""
    if is_pull_failure(reason):
        image = fields.text(container, "image", _IMAGE_LENGTH)
        return short_message(reason, fields.text(waiting, "message", _PULL_LENGTH), image)
    return f"{reason}: {fields.text(waiting, 'message', TEXT_LENGTH)}".rstrip(": ")


def _finished_at(metadata: Json, status: Json) -> float:
    """When the API server was told of the end of a pod that ended for good: until then its GPUs are nobody else's.

    That is the end of its last container, or where a kubelet could not tell at once, its word; 0.0 where it did not say
    it of each container.
    """
    if status.get("phase") not in ("Failed", "Succeeded"):
        return 0.0
    states = [fields.mapping(item, "state") for item in fields.items(status, "containerStatuses")]
    ends = [fields.time(fields.mapping(state, "terminated"), "finishedAt") for state in states]
    words = [item for item in fields.items(metadata, "managedFields") if item.get("subresource") == "status"]
    return max(ends + [fields.time(item, "time") for item in words]) if ends and all(ends) else 0.0


def _ended(container: Json, status: Json) -> Ended | None:
    last, now = fields.mapping(container, "lastState"), fields.mapping(container, "state")
    ended = fields.mapping(now, "terminated") or fields.mapping(last, "terminated")
    if ended:
        at, code = fields.time(ended, "finishedAt"), fields.number(ended, "exitCode") or 0
        return Ended(fields.text(ended, "reason"), code, _end_of(ended), at)
    if status.get("phase") == "Failed":
        return Ended(fields.text(status, "reason"), 0, _end_of(status), is_container=False)
    return None


def _end_of(body: Json) -> str:
    """The end of a message: it says why."""
    message = body.get("message")
    if isinstance(message, str):
        return fields.clean(message[-TEXT_LENGTH:])
    return fields.text(body, "message")


def _preempted(status: Json, disruption: Json) -> bool:
    """True if a pod was ended for its node's or another pod's sake.

    The kubelet's evictions carry the condition DisruptionTarget, but for those of a pod that exceeded a limit of its
    own: its successor would too. Kubelets before Kubernetes 1.26 say the same in their message only.
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    """
    if disruption.get("status") == "True":
        return True
    reason = fields.text(status, "reason")
    if reason == "Evicted":
        return fields.text(status, "message").startswith(_NODE_PRESSURE)
    return reason in _PREEMPTIONS


def _disruption(condition: Json) -> str:
    """The reason of the condition DisruptionTarget, where it holds: who ends the pod for another's sake."""
    return sys.intern(fields.text(condition, "reason", _LABEL_LENGTH)) if condition.get("status") == "True" else ""


def _retirement(text: Any) -> Retirement | None:
    """The retirement that an annotation asks for: whatever stands in it, it asks for one."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise fields.UnreadableError(resource.ANNOTATION_RETIRE, "a string", text)
    if len(text) > _RETIREMENT_LENGTH:
        return _BY_ANNOTATION
    try:
        value = json.loads(text)
        return Retirement(
            _why(value["why"]),
            bool(value["ifIdle"]),
            bool(value["release"]),
            bool(value.get("final", False)),
            _began(value.get("at", 0.0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _BY_ANNOTATION


def _why(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return quote(fields.clean(value[:TEXT_LENGTH]), TEXT_LENGTH)  # a line of the log says it once the pod is deleted


def _began(value: object) -> float:
    """The beginning of a drain; 0.0 where that is no time: then it is noted anew."""
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        return 0.0
    return float(fields.bounded_time(value))


def _made_with(text: Any) -> MadeWith | None:
    """The images and protocol that a scheduler pod was made with; None where no spec could have those."""
    if not isinstance(text, str) or len(text) > _MADE_WITH_LENGTH:
        return None
    try:
        value = json.loads(text)
        image, of_scheduler, protocol = value["image"], value["schedulerImage"], value["protocol"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if protocol not in get_args(Protocol) or not (_is_image(image) and _is_image(of_scheduler)):
        return None
    return MadeWith(image, of_scheduler, protocol, value.get("isDefault") is True)


def _is_image(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _IMAGE_LENGTH and fields.clean(value) == value


def _count(text: Any) -> int:
    """The number of GPUs in an annotation; 0 where it holds no such number."""
    if not isinstance(text, str) or len(text) > _GPU_DIGITS or not (text.isascii() and text.isdecimal()):
        return 0
    return int(text)
