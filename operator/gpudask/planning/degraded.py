"""The condition Degraded: what keeps a pool from what it should be, the most pressing first.

And the last message of a container that does not stay up, or what its image may lack where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpudask.api import addresses
from gpudask.api.addresses import UCXX
from gpudask.api.pool import Pool
from gpudask.api.reasons import Reason
from gpudask.api.spec import Spec
from gpudask.api.status import PoolStatus, iso
from gpudask.api.untrusted_text import quote, quote_last_line
from gpudask.planning import drain, listening, scheduler
from gpudask.planning.actions import soonest
from gpudask.planning.observed.observation import Failure, Observation, PoolMemory
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import PoolView

# A container that came back this often without staying up is not merely starting.
_CRASHING_RESTARTS = 2
# A pod that runs this long without its worker being registered is in trouble.
_SILENT_SECONDS = 120.0
# So long after a new scheduler's start workers may still end because its name led nowhere.
_SETTLED_SECONDS = 60.0
# Dask ends with "Worker failed to start."; why stands above, if the kubelet kept that much of the log.
_LIBRARY = re.compile(r"^.*\b((?:ModuleNotFoundError|ImportError): .*)$", re.MULTILINE)
_TELLS_NOTHING = "failed to start"
# So long after a pod's deletion is due it is told what keeps it: finalizers are usually taken off in seconds, and a
# kubelet says in seconds that what it ran has ended.
TERMINATING_SECONDS = 60.0

# Of pods that hold GPUs without work so many are named.
_HOLDERS_NAMED = 3

Trouble = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """The trouble, None where there is none. `requeue_after`: until time alone may change that."""

    trouble: Trouble | None = None
    requeue_after: float | None = None


def trouble(observation: Observation, pool: PoolStatus) -> Trouble | None:
    """The trouble of `pool`, None where there is none."""
    memory = observation.memory.get(pool.name)
    if memory and memory.refusal:
        return Reason(memory.refusal_reason), refusal_message(observation, memory)
    if pool.unschedulable:
        return Reason.UNSCHEDULABLE, pool.message + _gpus_held_idle(observation, pool)
    section = _section(observation, pool)
    if section is not None and (why := listening.trouble(observation, section)):
        return Reason.NOT_LISTENING, why
    pods = observation.workers(pool.name)
    return (
        failing_pods(observation, pods).trouble
        or _device_failure(observation, pool, pods)
        or _draining(observation, pool, pods)
        or kept_after_deletion(observation, pods).trouble
    )


def _section(observation: Observation, pool: PoolStatus) -> Pool | None:
    """The pool's section of the spec; None where that has no such pool any more."""
    return next((item for item in observation.cluster.spec.pools if item.name == pool.name), None)


def _gpus_held_idle(observation: Observation, pool: PoolStatus) -> str:
    """The pods of this cluster that hold GPUs without work while a GPU pod of `pool` finds no node; empty: none do."""
    section = _section(observation, pool)
    if section is None or section.gpu is None:
        return ""
    keeps = []
    for pod in observation.pods:
        workers = observation.registered(pod)
        kept = [worker for worker in workers if worker.held_keys or worker.blockers]
        if pod.gpus and pod.node and pod.live and kept and not any(worker.own for worker in workers):
            keeps.append(f"{pod.name} ({pod.gpus} GPU, {sum(worker.held_keys for worker in kept)} results)")
    if not keeps:
        return ""
    more = f" and {len(keeps) - _HOLDERS_NAMED} more" if len(keeps) > _HOLDERS_NAMED else ""
    return (
        f"; meanwhile idle pods hold GPUs for their results: {', '.join(keeps[:_HOLDERS_NAMED])}{more}:"
        " let go of the futures, or write heldData: {releaseAfter: 10m} in their pool"
    )


def failing_pods(observation: Observation, pods: Iterable[Pod]) -> Finding:
    """The first of the worker `pods` that does not stay up, or whose worker is not registered."""
    live = [pod for pod in pods if pod.live]
    findings = [*(_worker_waits(observation, pod) for pod in live), *(_unregistered(observation, pod) for pod in live)]
    found = next((each.trouble for each in findings if each.trouble is not None), None)
    return Finding(found, soonest(*(each.requeue_after for each in findings)))


def kept_after_deletion(observation: Observation, pods: Iterable[Pod]) -> Finding:
    """The first of `pods` that stays after its deletion was due; another pod has taken its place meanwhile."""
    kept = [pod for pod in pods if pod.deleting]
    left = [pod.delete_by + TERMINATING_SECONDS - observation.now for pod in kept]
    late = next((pod for pod, after in zip(kept, left, strict=True) if after <= 0), None)
    if late is None:
        return Finding(requeue_after=soonest(*left))
    return Finding((Reason.TERMINATING, what_keeps(late.name, late.finalizers, late.node)), soonest(*left))


def what_keeps(name: str, finalizers: Sequence[str], node: str) -> str:
    """What keeps an object for which the time of its deletion is over, and what ends it.

    Args:
        name: of it, with its kind where it is no pod.
        finalizers: that it has.
        node: of a pod; empty: it has none.
    """
    if finalizers:
        listed = ", ".join(finalizers)
        return f"{name} is deleted, but its finalizers keep it: {listed}: whoever set them has to take them off"
    if node:
        return (
            f"{name} is deleted, but its node {node} does not confirm its end: see `kubectl get node {node}`; one that"
            f" is lost for good lets go of its pods by `kubectl delete node {node}`"
        )
    return f"{name} is deleted, and the API server has it yet: see whether that and the controller manager are well"


def refusal_message(observation: Observation, memory: PoolMemory) -> str:
    """A message: the API server's refusal, since when, and the next try; empty where it refuses nothing."""
    if not memory.refused_since:
        return memory.refusal
    again = f", next try at {iso(memory.not_before, to='seconds')}" if memory.not_before > observation.now else ""
    return f"{memory.refusal}; since {iso(memory.refused_since, to='seconds')}{again}"


def failure_message(failure: Failure) -> str:
    """A message: the failure, since when, and the next try."""
    since, next_try = iso(failure.since, to="seconds"), iso(failure.next_try, to="seconds")
    return f"{failure.what}: {failure.message}; since {since}, next try at {next_try}"


def trouble_of_scheduler(observation: Observation) -> Trouble | None:
    """The trouble of a scheduler that is refused, or does not stay up; None where it does, or merely starts."""
    pod = observation.scheduler
    if pod is None:
        return _refused_scheduler(observation)
    found = _waiting(observation, pod)
    return found if found is not None and found[0] in (Reason.CRASHING, Reason.IMAGE) else None


def _refused_scheduler(observation: Observation) -> Trouble | None:
    memory = observation.memory.get("", PoolMemory())
    if not memory.refusal or observation.cluster.spec.suspend:
        return None
    message = refusal_message(observation, memory)
    if not scheduler.lacks_room(observation):
        return Reason(memory.refusal_reason), message
    workers = len(scheduler.preemptible(observation))
    pods = f"{workers} worker pods are deleted one after another" if workers > 1 else "worker pod is deleted"
    going = f", and its {pods} to make room" if workers else ""
    cure = "raise the quota, or end other pods of the namespace"
    return Reason.QUOTA, f"{message}; until it is there no worker is made{going}: {cure}"


def _worker_waits(observation: Observation, pod: Pod) -> Finding:
    found = _waiting(observation, pod)
    speaks_ucx = addresses.needs_headless(_protocol(observation.cluster.spec, pod))
    if found is None or found[0] != Reason.CRASHING or not speaks_ucx:
        return Finding(found)
    # UCX does not look for a name again: its workers end, and find the new scheduler when they have started again.
    head = observation.scheduler
    if head is None or not head.running:
        return Finding()
    settled_after = head.started + _SETTLED_SECONDS - observation.now
    return Finding(found if settled_after <= 0 else None, soonest(settled_after))


def _waiting(observation: Observation, pod: Pod) -> Trouble | None:
    """The trouble of a pod whose container waits, if that is more than a start."""
    if not pod.waiting:
        return None
    if "Image" in pod.waiting:
        return Reason.IMAGE, f"{pod.name}: {pod.waiting}"
    if pod.restarts >= _CRASHING_RESTARTS:
        return Reason.CRASHING, f"{pod.name}: {pod.waiting}{last_message(observation.cluster.spec, pod)}"
    if not pod.waiting.startswith("CrashLoopBackOff"):
        return Reason.CRASHING, f"{pod.name}: {pod.waiting}"
    return None


def _unregistered(observation: Observation, pod: Pod) -> Finding:
    if not observation.knows_demand or not pod.running or observation.registered(pod):
        return Finding()
    told_after = _SILENT_SECONDS - observation.unregistered_seconds(pod)
    if told_after > 0:
        return Finding(requeue_after=told_after)
    return Finding((Reason.UNREGISTERED, f"{pod.name} runs, but the scheduler does not know its worker: see its log"))


def _device_failure(observation: Observation, pool: PoolStatus, pods: Iterable[Pod]) -> Trouble | None:
    section = _section(observation, pool)
    if section is None:
        return None
    view = PoolView(observation, section)
    for pod in pods:
        if pod.live and (why := view.device_failure(pod)):
            return Reason.DEVICE_SICK, f"{pod.name}: {why}"
    return None


def _draining(observation: Observation, pool: PoolStatus, pods: Iterable[Pod]) -> Trouble | None:
    workers = [worker for pod in pods for worker in observation.registered(pod)]
    if any(worker.retiring == "blocked" for worker in workers):
        return Reason.DRAIN_BLOCKED, f"{pool.held or 'a drain waits'}{_held_cure(pool)}"
    if any(drain.progress(pod, observation.now, None).hangs for pod in pods):
        return Reason.DRAIN_HANGS, pool.leaving
    return None


def _held_cure(pool: PoolStatus) -> str:
    """What to do about pods that stay, GPUs and all, because of what they hold."""
    gpus = f"; the pool holds {pool.gpus_held} GPU{'s' if pool.gpus_held > 1 else ''}" if pool.gpus_held else ""
    by_time = "" if pool.removed or "actor" in pool.held else ", or write heldData: {releaseAfter: 10m} in the pool"
    return f"{gpus}: let go of the futures{by_time}"


def last_message(spec: Spec, pod: Pod) -> str:
    """The last message of a container of `pod`, and what to look for, to end a sentence; empty: it has none."""
    text = pod.ended.message.strip() if pod.ended else ""
    if not text:
        return ""
    if libraries := _LIBRARY.findall(text):
        return f"; it said: {quote(libraries[-1])}"
    last = quote_last_line(text)
    needs = list(_needs(spec, pod)) if _TELLS_NOTHING in last else []
    return f"; it said: {last}" + "".join(f"; {need}" for need in needs)


def _protocol(spec: Spec, pod: Pod) -> str:
    """The protocol that the workers of `pod` speak, where it is up to date."""
    return next((spec.protocol_of(pool) for pool in spec.pools if pool.name == pod.pool), spec.protocol)


def _needs(spec: Spec, pod: Pod) -> Iterator[str]:
    if _protocol(spec, pod) == UCXX:
        yield "with the protocol ucxx its image needs distributed-ucxx, for its CUDA version"
    gpu = next((pool.gpu for pool in spec.pools if pool.name == pod.pool), None)
    if gpu is None:
        return
    if gpu.rmm_pool_size is not None or gpu.rmm_allocator_for:
        yield f"for RMM its image needs {' and '.join(['rmm', *gpu.rmm_allocator_for])}"
    if gpu.pre_import:
        yield f"its image needs what gpu.preImport names: {', '.join(gpu.pre_import)}"
