"""Why each pod holds its GPUs while no task of its pool's own runs there: the causes but `working`, by precedence.

1. unhealthy: a worker's device fails; or the pod's workers were registered, or its container ended, and none is there.
2. starting: no worker of it was ever registered, as far as this operator knows.
3. draining: it retires, it is being deleted, or nothing keeps it, as where its pool was removed. But one that retires,
   has no work, and is blocked by what it holds has the cause heldResult: it is ready to go, and that keeps it.
4. frozen: the demand is not known, or the size of the pool cannot follow what is wanted.
5. heldByUser, of all other pods: the size is fixed, by the spec or by an override.
6. Of an autoscaled pool those that would leave last fill its minimum: spare, or heldByUser where an override sets it.
7. heldResult: idle for the timeout and longer, and something that it cannot leave behind keeps it.
8. waitingIdleTimeout: the rest.

Rule 6 comes before 7, so that a result keeps no pod that the minimum keeps anyway. Work is not asked for here: of a pod
that works, this is what its GPUs wait for as soon as the task ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudask.api.reasons import Cause
from gpudask.planning import overrides
from gpudask.planning.actions import Plan
from gpudask.planning.observed.observation import Observation
from gpudask.planning.observed.pods import Pod
from gpudask.planning.pool_view import PoolView, views
from gpudask.scaling import retirement
from gpudask.scaling.demand import Worker


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that holds `gpus` since `placed`, in seconds since the epoch. `rest`: the cause while it does not work.

    `stamp`: the same as Kubernetes has it, by its clock; 0.0: unknown.
    """

    uid: str
    pool: str
    dask_name: str
    gpus: int
    placed: float
    rest: Cause
    stamp: float = 0.0


@dataclass(frozen=True, slots=True)
class Gone:
    """A pod that holds its GPUs no more since `at`, in seconds since the epoch: it was deleted, or ended for good.

    `is_stamped`: its end was told, and is no time at which it was only found to be gone. `is_there`: it ended, and was
    not deleted yet: who sees it may not have been there as it did. `doubt_seconds`: by which it may have gone sooner or
    later than `at`, where a list alone showed that it is gone.
    """

    uid: str
    pool: str
    dask_name: str
    gpus: int
    placed: float
    at: float
    is_stamped: bool = False
    is_there: bool = False
    doubt_seconds: float = 0.0

    @classmethod
    def of(cls, pod: Pod, at: float) -> Gone:
        """A pod that was found to be gone at a time, and as it was last seen."""
        placed, ended = pod.placed or pod.created, pod.finished_at or pod.removed_at
        gone = cls(pod.uid, pod.pool, pod.dask_name, pod.gpus, placed, ended or at, is_stamped=bool(ended))
        there_at = max(pod.there_at, placed)
        if not pod.there_at or ended or at <= there_at:
            return gone
        return replace(gone, at=(there_at + at) / 2, doubt_seconds=(at - there_at) / 2)

    def may_be_of(self, at: float) -> bool:
        """Whether it may have gone before a time, and after it as well."""
        return abs(self.at - at) < self.doubt_seconds

    @property
    def holder(self) -> Holder:
        """The pod, of which no pass knew: it came and went between two."""
        return Holder(self.uid, self.pool, self.dask_name, self.gpus, self.placed, Cause.STARTING)


def ended_for_good(pods: Iterable[Pod]) -> list[Gone]:
    """Those of `pods` that held GPUs until they ended, and were not deleted yet."""
    ended = (pod for pod in pods if pod.pool and pod.node and pod.finished)
    return [replace(Gone.of(pod, pod.finished_at), is_there=True) for pod in ended]


def holders(observation: Observation, plan: Plan) -> tuple[Holder, ...]:
    """The pods that hold GPUs now, each with its cause."""
    observation = overrides.in_force(observation).observation
    joined = _joined(observation.first_joined)
    found = []
    for name, view in views(observation).items():
        pods = _on_nodes(view.pods)
        if not any(pod.gpus or view.pool.gpus_per_pod for pod in pods):
            continue
        frozen = bool(name in plan.pools and plan.pools[name].frozen) or not observation.knows_demand
        kept = _kept(view)
        for pod in pods:
            cause = _state(observation, pod, joined)
            cause = cause or (Cause.FROZEN if frozen else kept.get(pod.uid, Cause.DRAINING))
            found.append(_holder(pod, pod.gpus or view.pool.gpus_per_pod, cause))
    found += [
        _holder(pod, pod.gpus, _state(observation, pod, joined) or Cause.DRAINING)
        for pod in _on_nodes(observation.pods_of_removed_pools)
    ]
    return tuple(holder for holder in found if holder.gpus)


def holders_unplanned(pods: Iterable[Pod], first_joined: Iterable[str], gpus: dict[str, int]) -> tuple[Holder, ...]:
    """The same where there is no plan, since the spec cannot be acted on: no size follows anything.

    `first_joined`: as `Observation`'s. `gpus`: pod's uid -> its GPUs as they were last known.
    """
    joined = _joined(first_joined)
    found = []
    for pod in _on_nodes(pods):
        if not pod.pool:
            continue
        if pod.deleting or pod.retirement is not None:
            cause = Cause.DRAINING
        else:
            cause = Cause.FROZEN if pod.dask_name in joined or pod.ready else Cause.STARTING
        found.append(_holder(pod, pod.gpus or gpus.get(pod.uid, 0), cause))
    return tuple(holder for holder in found if holder.gpus)


def _holder(pod: Pod, gpus: int, cause: Cause) -> Holder:
    created, placed, *_ = pod.stamps or (0.0, 0.0)
    return Holder(pod.uid, pod.pool, pod.dask_name, gpus, pod.placed or pod.created, cause, placed or created)


def _on_nodes(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.node and not pod.finished]


def _joined(workers: Iterable[str]) -> set[str]:
    """The Dask names of the pods whose workers these may be."""
    return {name for worker in workers for name in (worker, worker.rpartition("-")[0])}


def _state(observation: Observation, pod: Pod, joined: set[str]) -> Cause | None:
    """What is known of the pod itself: rules 1 to 3; None: it could work."""
    workers = observation.registered(pod)
    had_workers = bool(workers) or pod.dask_name in joined or (not observation.knows_demand and pod.ready)
    if any(worker.sick for worker in workers):
        return Cause.UNHEALTHY
    ends = pod.deleting  # its workers go before it
    if observation.knows_demand and not workers and not ends and (had_workers or pod.ended is not None):
        return Cause.UNHEALTHY
    if not had_workers:
        return Cause.STARTING
    if pod.retirement is not None and not ends and _is_blocked(workers):
        return Cause.HELD_RESULT
    return Cause.DRAINING if ends or pod.retirement is not None else None


def _is_blocked(workers: tuple[Worker, ...]) -> bool:
    """Whether a pod that retires has nothing to do, and something keeps it that it cannot leave behind."""
    return any(worker.retiring == "blocked" for worker in workers) and not any(worker.own for worker in workers)


def _kept(view: PoolView) -> dict[str, Cause]:
    """Pod's uid -> why it stays, by rules 5 to 8, for the pods that stay."""
    observation, override = view.observation, view.override
    if observation.cluster.spec.suspend:
        return {}
    limits = view.pool.autoscale
    if limits is None or (override is not None and override.replicas is not None):
        return {pod.uid: Cause.HELD_BY_USER for pod in view.staying}
    by_name = {pod.name: pod.uid for pod in view.staying}
    candidates = sorted(view.candidates(view.staying), key=retirement.order)
    beyond = max(0, len(candidates) - limits.min)  # so many may leave, the first ones first
    least = Cause.SPARE if override is None else Cause.HELD_BY_USER
    kept = {by_name[candidate.pod]: least for candidate in candidates[beyond:]}
    for candidate in candidates[:beyond]:
        waited = not candidate.busy and candidate.idle_seconds >= limits.idle_timeout_seconds
        holds = waited and retirement.keeps(candidate, view.release_after_seconds)
        kept[by_name[candidate.pod]] = Cause.HELD_RESULT if holds else Cause.WAITING_IDLE_TIMEOUT
    return kept
