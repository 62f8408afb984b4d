"""The pods of a job's runners, reduced to the few fields that a pass reads. All of it is hostile input."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from gpudask.api import Json, resource
from gpudask.api.image_pull import is_pull_failure, short_message
from gpudask.api.resource import Identity
from gpudask.api.untrusted_text import quote
from gpudask.planning.observed import fields
from gpudask.planning.observed.parser import owner_key

_LABEL_LENGTH = 63
_IMAGE_LENGTH = 512
_PULL_LENGTH = 8192
_TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True)
class RunnerPod:
    """A pod that a job controls. `owner`: the job's `Identity.owner_key`; empty where no job controls it.

    `gated`: it may not be scheduled yet, because the job's status does not have its uid. `waits_for`: why its program
    does not run yet, quoted. `ended`: the program has ended, `exit_code` if that is known, or never will run.
    `finished`: all of its containers have; `stopping`: those that go on are being ended. `made_of`: the hash of what it
    was made of.
    """

    uid: str
    name: str
    namespace: str
    owner: str
    version: str
    container: str
    gated: bool
    node: str
    running: bool
    ended: bool
    finished: bool
    exit_code: int | None
    reason: str
    message: str
    waits_for: str
    deleting: bool
    stopping: bool = False
    made_of: str = ""

    @property
    def never_ran(self) -> bool:
        """Whether it ended, and its program certainly did not begin: its node refused it, or it never had one."""
        if not self.ended or self.exit_code is not None or self.running:
            return False
        is_refusal = self.reason in _REFUSED_BY_NODE or self.reason.startswith(_OUT_OF)
        return not self.node or is_refusal or self.message.startswith(_REJECTED)


# The kubelet's reasons for pods that it does not even begin, and how its message about any of these begins. Of any
# resource it says OutOf and its name. After its restart it refuses so what ran before, too.
# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/lifecycle/predicate.go
_OUT_OF = "OutOf"
_REJECTED = "Pod was rejected: "
_REFUSED_BY_NODE = frozenset(
    {
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeUnschedulable",
        "TaintToleration",
        "TopologyAffinityError",
    }
)


def parse_runner_pod(body: Json) -> RunnerPod:
    """A pod of the API server, reduced.

    Raises:
        UnreadableError: it has not the shape of a pod.
    """
    metadata, spec, status = (fields.mapping(body, part) for part in ("metadata", "spec", "status"))
    containers = fields.items(spec, "containers")
    name = fields.text(containers[0], "name", _LABEL_LENGTH) if containers else ""
    container = next((item for item in fields.items(status, "containerStatuses") if item.get("name") == name), {})
    state, phase = fields.mapping(container, "state"), fields.text(status, "phase", _LABEL_LENGTH)
    terminated = fields.mapping(state, "terminated")
    gates = [gate.get("name") for gate in fields.items(spec, "schedulingGates")]
    finished = phase in _TERMINAL
    return RunnerPod(
        uid=fields.identifier(metadata, "uid"),
        name=fields.identifier(metadata, "name"),
        namespace=sys.intern(fields.identifier(metadata, "namespace")),
        owner=sys.intern(job_key(metadata)),
        version=fields.version(metadata),
        container=name,
        gated=resource.GATE_RECORDED in gates,
        node=sys.intern(fields.text(spec, "nodeName")),
        running=state.get("running") is not None,
        ended=bool(terminated) or finished,
        finished=finished,
        exit_code=fields.number(terminated, "exitCode") if terminated else 0 if phase == "Succeeded" else None,
        reason=fields.text(terminated, "reason") or fields.text(status, "reason"),
        message=_message(terminated) or _message(status),
        waits_for=_waits_for(container, status),
        deleting=bool(metadata.get("deletionTimestamp")),
        stopping=fields.number(spec, "activeDeadlineSeconds") == 1,
        made_of=fields.text(fields.mapping(metadata, "annotations"), resource.ANNOTATION_SPEC_HASH, _LABEL_LENGTH),
    )


def job_key(metadata: Json) -> str:
    """The `Identity.owner_key` of the GpuDaskJob that controls an object, empty where none does."""
    return owner_key(metadata, resource.JOB_KIND)


def is_of_earlier(metadata: Json, job: Identity) -> bool:
    """Whether an earlier GpuDaskJob of the name of `job` controls an object: Kubernetes deletes it, as that is gone."""
    try:
        if job_key(metadata) in ("", job.owner_key):
            return False
        references = fields.items(metadata, "ownerReferences")
    except fields.UnreadableError:
        return False
    return any(item.get("controller") is True and item.get("name") == job.name for item in references)


def _message(of: Json) -> str:
    """The end of a message: it says why."""
    message = of.get("message")
    return fields.clean(message[-4 * fields.TEXT_LENGTH :]) if isinstance(message, str) else ""


def _waits_for(container: Json, status: Json) -> str:
    waiting = fields.mapping(fields.mapping(container, "state"), "waiting")
    reason = fields.text(waiting, "reason")
    if is_pull_failure(reason):
        image = fields.text(container, "image", _IMAGE_LENGTH)
        return short_message(reason, fields.text(waiting, "message", _PULL_LENGTH), image)
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return quote(f"{reason}: {fields.text(waiting, 'message', fields.TEXT_LENGTH)}".rstrip(": "))
    scheduled = next((c for c in fields.items(status, "conditions") if c.get("type") == "PodScheduled"), {})
    if scheduled.get("reason") == "Unschedulable":
        return quote(f"no node: {fields.text(scheduled, 'message', fields.TEXT_LENGTH)}")
    return ""
