"""What the stock operator left of a cluster that it ran, and when it may be replaced: values in, a decision out.

dask-kubernetes 2026.3.0 makes a Deployment for the scheduler and one for each worker, and the Service. They are taken
for its own where their controller is the DaskCluster, or one of its worker groups: by uid, not by a label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.api.resource import LABEL_DASK_COMPONENT, STOCK_GROUP, STOCK_JOB_KIND
from gpudask.api.untrusted_text import quote
from gpudask.mirror.state import TAKE_OVER_NOW, MirrorObject
from gpudask.planning.degraded import TERMINATING_SECONDS, what_keeps
from gpudask.planning.observed import fields

ANNOTATION_ADVICE = "kubectl -n {namespace} annotate daskcluster {name} " + "=".join(TAKE_OVER_NOW)
# Two answers at least, so that the pause between a program's two tasks is none. A program that is connected may think
# for longer; one that only keeps its connection open, as notebooks do, does not hold the cluster back for ever.
IDLE_SECONDS = 10.0
IDLE_WITH_CLIENTS_SECONDS = 600.0
_SCHEDULER, _WORKER, RUNNER = "scheduler", "worker", "job-runner"
_FINALIZERS = 8  # of an object so many are named
_MESSAGE_LENGTH = 1024
SUCCEEDED, FAILED = ENDED = ("Succeeded", "Failed")  # phases of a pod


@dataclass(frozen=True)
class Leftover:
    """An object of the stock operator's. `ending`: it is being deleted; `finalizers`: keep it then."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    ending: bool
    finalizers: tuple[str, ...] = ()

    @property
    def reference(self) -> Json:
        """What names it in a request."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
        }


@dataclass(frozen=True)
class OldPod:
    """A pod that a Deployment of the stock operator made.

    `delete_by`: when its deletion is due, seconds since the epoch by the API server; 0.0: it is not being deleted.
    """

    name: str
    component: str
    address: str = ""
    node: str = ""
    finalizers: tuple[str, ...] = ()
    delete_by: float = 0.0


@dataclass(frozen=True)
class Leftovers:
    """What is left of one cluster.

    `schedulers`, `workers`: Deployments. `services`: the scheduler's. `pods`: of these. `address`: the IP of the
    scheduler's pod; empty: it has none. `runner`: the phase of the pod that runs the program of the DaskJob for
    which the cluster was made; empty: there is none.
    """

    schedulers: tuple[Leftover, ...] = ()
    workers: tuple[Leftover, ...] = ()
    services: tuple[Leftover, ...] = ()
    pods: tuple[OldPod, ...] = ()
    address: str = ""
    runner: str = ""

    @property
    def all(self) -> tuple[Leftover, ...]:
        """Every object but the pods, which go with them; in the order in which they are deleted."""
        return (*self.schedulers, *self.workers, *self.services)


@dataclass(frozen=True)
class Heard:
    """What the old scheduler answered.

    `tasks`: how many it knows, run, waiting and held in memory together; None: it did not answer. `clients`: programs
    that are connected. `idle_seconds`: since when it was heard to have no task, without a break.
    """

    tasks: int | None = None
    clients: int = 0
    idle_seconds: float = 0.0


@dataclass(frozen=True)
class Decision:
    """What is done now. `replace`: all that is left is deleted; else it stays, and `reason` and `message` say why."""

    replace: bool
    reason: Reason
    message: str


_GOES = Decision(replace=True, reason=Reason.TERMINATING, message="what the stock operator made for it ends")


def ends_with_job(cluster: MirrorObject) -> bool:
    """Whether `cluster` was made for the program of a DaskJob, and ends with that: nothing replaces it."""
    return bool(job_uid(cluster)) and not cluster.take_over_now


def is_replaced(cluster: MirrorObject, left: Leftovers) -> bool:
    """Whether a cluster of ours takes the place of `cluster`: not where it was for a program that has ended."""
    return not ends_with_job(cluster) and not (job_uid(cluster) and left.runner in ENDED)


def runner_phase(cluster: MirrorObject, pods: Iterable[Json]) -> str:
    """The phase of the pod, of `pods` as `reduced_pod` has them, that runs the program for which `cluster` was made.

    Empty: it is gone, or the cluster was made for none.
    """
    job = job_uid(cluster)
    return next((phase for body in pods if job and (phase := _phase_of_runner(body, job))), "")


def needs_answer(cluster: MirrorObject, left: Leftovers) -> bool:
    """Whether the old scheduler has to be asked before anything is deleted."""
    if cluster.take_over_now or ends_with_job(cluster):
        return False
    return bool(left.schedulers) and not any(item.ending for item in left.schedulers)


def decide(cluster: MirrorObject, left: Leftovers, heard: Heard) -> Decision:
    """Decide whether what is `left` of `cluster` may go; a scheduler that is gone, or goes, has nothing to lose."""
    if ends_with_job(cluster) and left.runner not in ("", *ENDED):
        message = "the program of its DaskJob, of the stock operator, has not ended: it goes on, and ends with that"
        return Decision(replace=False, reason=Reason.WORK_IN_PROGRESS, message=message)
    if not needs_answer(cluster, left):
        return _GOES
    if heard.tasks is None:
        return Decision(
            replace=False,
            reason=Reason.SCHEDULER_UNREACHABLE,
            message=(
                "its scheduler, of the stock operator, does not say on its dashboard's port whether it is idle: it is"
                f" replaced once it does, or at once after {_advice(cluster)}"
            ),
        )
    return _busy(cluster, heard) or _GOES


def _busy(cluster: MirrorObject, heard: Heard) -> Decision | None:
    """Why the scheduler that was `heard` is not to be disturbed; None: it is idle."""
    message = ""
    if heard.tasks:
        message = (
            "its scheduler and workers, of the stock operator, have tasks, or results in memory: they go on, with the"
            " size that they have, and are replaced once they have none"
        )
    elif heard.clients and cluster.references:
        return _connected("the program of what owns it")
    elif heard.clients and heard.idle_seconds < IDLE_WITH_CLIENTS_SECONDS:
        return _connected(f"a program, and {IDLE_WITH_CLIENTS_SECONDS / 60:.0f} minutes have not passed without a task")
    elif heard.idle_seconds < IDLE_SECONDS:
        message = f"its scheduler has no task: it is replaced if that is still so in {IDLE_SECONDS:.0f} s"
    return Decision(replace=False, reason=Reason.WORK_IN_PROGRESS, message=message) if message else None


def _connected(who: str) -> Decision:
    message = f"its scheduler, of the stock operator, has no task, but {who} is connected: it is replaced afterwards"
    return Decision(replace=False, reason=Reason.CLIENTS_CONNECTED, message=message)


def ending_message(left: Leftovers, now: float, waited_seconds: float) -> str:
    """What the end of what is `left` waits for; what holds it, once that has lasted.

    Args:
        left: all of it is being deleted, or has lost its Deployment.
        now: seconds since the epoch, by the API server.
        waited_seconds: for which it was seen to be so.
    """
    ends = "the stock operator's pods end"
    late = waited_seconds >= TERMINATING_SECONDS
    kept = [
        what_keeps(f"{item.kind} {item.name}", item.finalizers, "")
        for item in left.all
        if late and item.ending and item.finalizers
    ]
    for pod in left.pods:
        if pod.delete_by and now >= pod.delete_by + TERMINATING_SECONDS:
            kept.append(what_keeps(f"pod {pod.name}", pod.finalizers, pod.node))
        elif not pod.delete_by and late and not left.all:
            kept.append(
                f"pod {pod.name} is not deleted, though its Deployment is: Kubernetes' garbage collector does that, in"
                f" the controller manager: see whether it runs, or `kubectl delete pod {pod.name}`"
            )
    if not kept:
        return ends
    more = f"; and {len(kept) - 1} more are kept" if len(kept) > 1 else ""
    return quote(f"{ends}: {kept[0]}{more}", _MESSAGE_LENGTH)


def _advice(cluster: MirrorObject) -> str:
    return ANNOTATION_ADVICE.format(namespace=cluster.owner.partition("/")[0], name=cluster.name)


def read(
    cluster: MirrorObject,
    groups: Iterable[MirrorObject],
    deployments: Iterable[Json],
    services: Iterable[Json],
    pods: Iterable[Json],
) -> Leftovers:
    """What is left of `cluster` among objects that carry its name in a label; what cannot be read is not its.

    `deployments`, `services`: their metadata; `pods`: as `reduced_pod` has them.
    """
    pods = list(pods)
    owners = {cluster.uid: "DaskCluster", **{group.uid: "DaskWorkerGroup" for group in groups}}
    own = [found for body in deployments if (found := _controlled(body, "apps/v1", "Deployment", owners)) is not None]
    of_cluster = {cluster.uid: "DaskCluster"}
    found_services = [
        found for body in services if (found := _controlled(body, "v1", "Service", of_cluster)) is not None
    ]
    name = f"{cluster.name}-{_SCHEDULER}"
    old = [pod for body in pods if (pod := _old_pod(body)) is not None]
    return Leftovers(
        schedulers=tuple(item for item in own if item.name == name),
        workers=tuple(item for item in own if item.name != name),
        services=tuple(item for item in found_services if item.name == name),
        pods=tuple(old),
        address=next((pod.address for pod in old if pod.component == _SCHEDULER and pod.address), ""),
        runner=runner_phase(cluster, pods),
    )


def reduced_pod(body: Json) -> Json:
    """What `read` reads of a pod, which a tenant may have made as large as it likes; empty: it is not one."""
    try:
        meta, status = fields.mapping(body, "metadata"), fields.mapping(body, "status")
        component = fields.text(fields.mapping(meta, "labels"), LABEL_DASK_COMPONENT)
        controller = {key: fields.text(_controller(meta), key) for key in ("kind", "uid")}
        ending = {key: fields.text(meta, key) for key in ("deletionTimestamp",) if key in meta}
        return {
            "metadata": {
                "name": fields.text(meta, "name"),
                "labels": {LABEL_DASK_COMPONENT: component},
                "ownerReferences": [controller | {"controller": True}],
                "finalizers": fields.strings(meta, "finalizers")[:_FINALIZERS],
                **ending,
            },
            "spec": {"nodeName": fields.text(fields.mapping(body, "spec"), "nodeName")},
            "status": {key: fields.text(status, key) for key in ("phase", "podIP")},
        }
    except fields.UnreadableError:
        return {}


def _controlled(body: Json, api_version: str, kind: str, owners: dict[str, str]) -> Leftover | None:
    """`body` as a leftover; None: its controller is none of `owners`, kinds by uid."""
    try:
        meta = fields.mapping(body, "metadata")
        controller = _controller(meta)
        if owners.get(fields.text(controller, "uid")) != fields.text(controller, "kind"):
            return None
        return Leftover(
            api_version,
            kind,
            fields.identifier(meta, "namespace"),
            fields.identifier(meta, "name"),
            fields.identifier(meta, "uid"),
            fields.version(meta),
            "deletionTimestamp" in meta,
            tuple(fields.strings(meta, "finalizers")[:_FINALIZERS]),
        )
    except fields.UnreadableError:
        return None


def _old_pod(body: Json) -> OldPod | None:
    """A pod that a Deployment made; None: it is another one, or none of a cluster's."""
    try:
        meta, status = fields.mapping(body, "metadata"), fields.mapping(body, "status")
        component = fields.text(fields.mapping(meta, "labels"), LABEL_DASK_COMPONENT)
        ended = fields.text(status, "phase") in ENDED
        if component not in (_SCHEDULER, _WORKER) or ended or _controller(meta).get("kind") != "ReplicaSet":
            return None
        running = fields.text(status, "phase") == "Running" and "deletionTimestamp" not in meta
        return OldPod(
            fields.text(meta, "name"),
            component,
            fields.text(status, "podIP") if running else "",
            fields.text(fields.mapping(body, "spec"), "nodeName"),
            tuple(fields.strings(meta, "finalizers")[:_FINALIZERS]),
            fields.time(meta, "deletionTimestamp"),
        )
    except fields.UnreadableError:
        return None


def _phase_of_runner(body: Json, job: str) -> str:
    """The phase of a pod that runs the program of the DaskJob with the uid `job`; empty: it is another one."""
    try:
        meta, status = fields.mapping(body, "metadata"), fields.mapping(body, "status")
        component = fields.text(fields.mapping(meta, "labels"), LABEL_DASK_COMPONENT)
        if component != RUNNER or fields.text(_controller(meta), "uid") != job:
            return ""
        return fields.text(status, "phase") or "Unknown"
    except fields.UnreadableError:
        return ""


def job_uid(cluster: MirrorObject) -> str:
    """The uid of the DaskJob that controls `cluster`; empty: none does."""
    controllers = (item for item in cluster.references if item.get("controller") is True)
    return next(
        (
            str(item.get("uid"))
            for item in controllers
            if item.get("kind") == STOCK_JOB_KIND and str(item.get("apiVersion")).startswith(f"{STOCK_GROUP}/")
        ),
        "",
    )


def _controller(meta: Json) -> Json:
    found = [item for item in fields.items(meta, "ownerReferences") if item.get("controller") is True]
    return found[0] if found else {}
