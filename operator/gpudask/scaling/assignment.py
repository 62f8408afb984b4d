"""The assignment of demand to pools, the cheapest first; spill-over; when `fallback` begins; what no pool serves.

Spill-over: demand above a pool's capacity goes to the next more expensive pool.

A pool at its maximum, or one whose further pods find no node or are refused, does what it can in the time that a pod
of the next pool needs to start, and in `targetDuration` after that. Only what is left then is worth a dearer pod.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from gpudask.api.pool import Pool
from gpudask.api.spec import Spec
from gpudask.api.untrusted_text import quote
from gpudask.scaling.demand import Requirement

# How long a pod is taken to need where none like it has been seen to start, in this cluster or another: a GPU node
# takes minutes to come, but a pod that is there too early holds a GPU for nothing.
UNKNOWN_START_SECONDS = 60.0
# Of names that a task's author wrote: so many are told of, in so many characters, and compared with so many.
_NAMES_TOLD, _SHOWN, _COMPARED = 3, 60, 64


@dataclass(frozen=True, slots=True)
class Share:
    """The demand that one pool has to serve; `pods` are fractions of full pods: as many as the tasks fill.

    `next_seconds`: when the first of the tasks that wait for their inputs can run, as the scheduler said it.
    `spills_from`: the cheaper pool that cannot do all of it; its own share still says all.
    """

    unrunnable: int = 0
    processing: int = 0
    pods: float = 0.0
    pods_unknown: float = 0.0
    pod_seconds: float = 0.0
    next_seconds: float | None = None
    spills_from: str = ""

    @classmethod
    def of(cls, requirement: Requirement, slots: int) -> Share:
        """All of `requirement`, where one pod runs `slots` such tasks at once."""
        if requirement.holds_nothing:
            return cls(unrunnable=requirement.unrunnable, processing=requirement.processing)
        return cls(
            unrunnable=requirement.unrunnable,
            processing=requirement.processing,
            pods=requirement.active / slots,
            pods_unknown=requirement.unknown / slots,
            pod_seconds=requirement.seconds / slots,
        )

    def __add__(self, other: Share) -> Share:
        """The sum of both shares."""
        return Share(
            unrunnable=self.unrunnable + other.unrunnable,
            processing=self.processing + other.processing,
            pods=self.pods + other.pods,
            pods_unknown=self.pods_unknown + other.pods_unknown,
            pod_seconds=self.pod_seconds + other.pod_seconds,
            next_seconds=min((s for s in (self.next_seconds, other.next_seconds) if s is not None), default=None),
            spills_from=self.spills_from or other.spills_from,
        )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The `pods` that a pool can have now.

    `all_warmed_up`: whether it has all of them, and each had time to end a first task. `start_seconds`: how long one of
    its pods takes to start, None where none was seen to.
    """

    pods: float = math.inf
    all_warmed_up: bool = False
    start_seconds: float | None = None

    def less(self, pods: float) -> Capacity:
        """The capacity that is left when `pods` of it are taken."""
        return replace(self, pods=max(0.0, self.pods - pods))


@dataclass(frozen=True, slots=True)
class Assignment:
    """Every pool's share, and the requirements that no pool can serve."""

    shares: dict[str, Share]
    unserved: tuple[Requirement, ...]


def slots_per_pod(spec: Spec, pool: Pool, requirement: Requirement) -> int:
    """The number of tasks of `requirement` that one pod of `pool` runs at once, 0 where it can run none.

    A worker runs at most a task a thread; each process has its own offer, so a task must fit one process. It must know
    each of the names, as distributed's workers must, also one of which a task asks for 0.
    """
    if not requirement.resources and spec.accepts(pool) == "annotated":
        return 0
    offered = pool.offered_resources
    if any(name not in offered for name, _ in requirement.resources):
        return 0
    fits = [offered[name] // amount for name, amount in requirement.resources if amount > 0]
    return pool.workers_per_pod * int(min([pool.threads_per_worker, *fits]))  # of a tiny amount, infinitely many fit


def cost_order(spec: Spec) -> list[Pool]:
    """Pools from cheap to dear: without GPUs first, then fewer GPUs a pod, then as declared."""
    return sorted(spec.pools, key=lambda pool: pool.gpus_per_pod)


def assign(
    spec: Spec, requirements: tuple[Requirement, ...], capacities: Mapping[str, Capacity] | None = None
) -> Assignment:
    """Give each requirement to the cheapest pool that can serve it (and that may have a pod at all).

    Spill-over, the demand above that pool's capacity, goes to the next as well. The cheaper pool's share keeps it, too:
    it is the pool to have the pods as soon as it can. Demand that fewer pools can serve takes its capacity first.

    Args:
        spec: the pools.
        requirements: the demand.
        capacities: by pool; one that is missing has no bound.
    """
    demands = [_Served(requirement, _able(spec, requirement)) for requirement in requirements]
    shares = {pool.name: Share() for pool in spec.pools}
    left = {pool.name: (capacities or {}).get(pool.name, Capacity()) for pool in spec.pools}
    for served in sorted((one for one in demands if one.pools), key=lambda one: len(one.pools)):
        for pool, share in _look_ahead(served, left):
            shares[pool] += share
        for pool, share, taken in _spread(spec, served, left):
            shares[pool] += share
            left[pool] = left[pool].less(taken)
    return Assignment(shares, tuple(one.requirement for one in demands if one.requirement.active and not one.pools))


@dataclass(frozen=True, slots=True)
class _Served:
    """A requirement and the pools that can serve it, the cheapest first."""

    requirement: Requirement
    pools: list[Pool]


def _able(spec: Spec, requirement: Requirement) -> list[Pool]:
    return [pool for pool in cost_order(spec) if slots_per_pod(spec, pool, requirement) and may_exist(spec, pool)]


def _look_ahead(served: _Served, capacities: Mapping[str, Capacity]) -> Iterator[tuple[str, Share]]:
    """The share of tasks that can run soon: it is the cheapest pool's that can have a pod."""
    if served.requirement.next_seconds is not None:
        pool = next((pool for pool in served.pools if capacities[pool.name].pods >= 1), served.pools[0])
        yield pool.name, Share(next_seconds=served.requirement.next_seconds)


def _spread(spec: Spec, served: _Served, capacities: Mapping[str, Capacity]) -> Iterator[tuple[str, Share, float]]:
    """The share of each pool, cheapest first, and the pods of its capacity that it takes."""
    if served.requirement.holds_nothing:
        yield served.pools[0].name, Share.of(served.requirement, 1), 0.0
        return
    rest, tasks, spills_from = served.requirement, float(served.requirement.active), ""
    for pool, dearer in zip(served.pools, [*served.pools[1:], None], strict=True):
        if tasks <= 0:
            return
        slots, capacity = slots_per_pod(spec, pool, rest), capacities[pool.name]
        seconds = _deadline_seconds(dearer, capacities) if dearer else 0.0
        yield pool.name, _share(rest, slots, tasks, spills_from), min(capacity.pods, needed_pods(rest, slots, seconds))
        tasks -= capacity.pods * slots
        rest, spills_from = spill_over(rest, slots, seconds, capacity), pool.name


def _share(requirement: Requirement, slots: int, tasks: float, spills_from: str) -> Share:
    """The share of one pool. `tasks` are more than the requirement's own where the cheaper pool will do some in time.

    So a pod that was ordered for tasks that spilled over is not cancelled when they become a little fewer.
    """
    return Share(
        unrunnable=requirement.unrunnable,
        processing=requirement.processing,
        pods=tasks / slots,
        pods_unknown=requirement.unknown / slots,
        pod_seconds=requirement.seconds / slots,
        spills_from=spills_from if requirement.active else "",
    )


def _deadline_seconds(dearer: Pool, capacities: Mapping[str, Capacity]) -> float:
    """Seconds in which a pool has to do its demand, or it spills over to `dearer`; 0.0 where that has a fixed size."""
    if dearer.autoscale is None:
        return 0.0
    start = capacities[dearer.name].start_seconds
    return dearer.autoscale.target_duration_seconds + (UNKNOWN_START_SECONDS if start is None else start)


def may_exist(spec: Spec, pool: Pool) -> bool:
    """True if `pool` is not set to 0 pods."""
    overridden = {override.pool: override.replicas for override in spec.overrides}
    return overridden.get(pool.name, pool.replicas) != 0


def unserved_message(spec: Spec, requirement: Requirement) -> str:
    """A message that no pool serves `requirement`: it names what each pool offers."""
    tasks = f"{requirement.active} task{'s' if requirement.active != 1 else ''}"
    if not requirement.resources:
        held = [pool.name for pool in spec.pools if spec.accepts(pool) == "any"]
        if held:
            names = " and pool ".join(held)
            return f"{tasks} without resource annotations: pool {names} set to 0 pods: {_give_size(held)}"
        offers = next((_written(pool.offered_resources) for pool in cost_order(spec) if pool.offered_resources), "")
        annotate = f"write resources={{{offers}}} with them, or " if offers else "write "
        return (
            f"{tasks} without resource annotations: every pool accepts annotated tasks only:"
            f" {annotate}accepts: any in a pool"
        )
    want = "wants" if requirement.active == 1 else "want"
    offered = ", ".join(_offer(spec, pool, requirement) for pool in spec.pools)
    return f"{tasks} {want} {requirement}; {offered}: {_cure(spec, requirement)}"


def _cure(spec: Spec, requirement: Requirement) -> str:
    """What to write so that `requirement` is served: the name that was meant, less, or what a pool has to offer."""
    if held := [pool.name for pool in spec.pools if slots_per_pod(spec, pool, requirement)]:
        return _give_size(held)
    asked = dict(requirement.resources)
    known = {name for pool in spec.pools for name in pool.offered_resources}
    unknown = [name for name in asked if name not in known]
    if unknown:
        return "; ".join(_unknown_name(name, asked[name], known) for name in unknown[:_NAMES_TOLD])
    if (most := _most_offered(spec, asked)) is None:
        return f"write one of them with each task, or a pool whose workers offer all of {quote(', '.join(asked))}"
    pool, less = most
    scarce = next(name for name in asked if less[name] < asked[name])
    return (
        f"write {quote(_written(less, braces=False))}, or a pool whose workers offer {asked[scarce]:g}"
        f" {quote(scarce, _SHOWN)}{_one_process(pool, scarce, asked[scarce])}"
    )


def _most_offered(spec: Spec, asked: Mapping[str, float]) -> tuple[Pool, dict[str, float]] | None:
    """The pool whose workers offer all of these names, and most of them, with what it can give; None: there is none."""
    found = []
    for pool in cost_order(spec):
        offered = pool.offered_resources
        if all(offered.get(name, 0.0) > 0 for name, amount in asked.items() if amount > 0):
            less = {name: min(amount, offered.get(name, 0.0)) for name, amount in asked.items()}
            found.append((sum(less[name] / asked[name] for name in asked if asked[name] > 0), pool, less))
    best = max(found, key=lambda each: each[0], default=None)
    return None if best is None else (best[1], best[2])


def _one_process(pool: Pool, name: str, amount: float) -> str:
    """How one worker gets several GPUs: by default each has a process of its own."""
    is_of_devices = pool.gpu is not None and pool.offers is None and name == "GPU" and amount == int(amount)
    return f": gpu: {{count: {amount:g}, launcher: dask}}" if is_of_devices else ""


def _unknown_name(name: str, amount: float, known: Collection[str]) -> str:
    shown = quote(name, _SHOWN)
    by_case = {each.casefold(): each for each in sorted(known)}
    close = get_close_matches(name[:_SHOWN].casefold(), [each[:_SHOWN] for each in by_case][:_COMPARED], n=1)
    if close:
        return f"{shown}: did you mean `{quote(by_case[close[0]], _SHOWN)}`?"
    return f"no pool offers {shown}: write offers: {{{shown}: {amount:g}}} in a pool, or leave it out"


def _written(resources: Mapping[str, float], *, braces: bool = True) -> str:
    """Resources as people write them in Python, or in the message of a demand: `'GPU': 1`, or `` `GPU: 1` ``."""
    if braces:
        return quote(", ".join(f"{name!r}: {amount:g}" for name, amount in resources.items()))
    return "`" + ", ".join(f"{name}: {amount:g}" for name, amount in resources.items()) + "`"


def _give_size(pools: Sequence[str]) -> str:
    return f"give {pools[0]} a size: gpudask scale CLUSTER {pools[0]}=auto, or unscale({pools[0]!r})"


def _offer(spec: Spec, pool: Pool, requirement: Requirement) -> str:
    offered = replace(requirement, resources=tuple(sorted(pool.offered_resources.items())))
    held = " but is set to 0 pods" if slots_per_pod(spec, pool, requirement) and not may_exist(spec, pool) else ""
    return f"pool {pool.name} offers {offered} a worker{held}"


def needed_pods(requirement: Requirement, slots: int, seconds: float, *, all_warmed_up: bool = True) -> float:
    """Pods, with `slots` for such tasks each, that do `requirement` in `seconds`: never more than its tasks fill.

    Tasks of unknown duration count as longer than that, but only once all pods that the pool can have were tried:
    until then it is the pool's own size that doubles.
    """
    known = requirement.seconds / seconds if seconds > 0 else float(requirement.active)
    unknown = requirement.unknown if all_warmed_up else 0
    return min(float(requirement.active), known + unknown) / slots


def spill_over(requirement: Requirement, slots: int, seconds: float, capacity: Capacity) -> Requirement:
    """The spill-over: the part of `requirement` that `capacity` cannot do in `seconds`; waiting tasks go first."""
    need = needed_pods(requirement, slots, seconds, all_warmed_up=capacity.all_warmed_up)
    if need <= capacity.pods:
        return Requirement(requirement.resources)
    part = 1.0 - capacity.pods / need
    tasks = math.ceil(part * requirement.active)
    unrunnable = min(tasks, requirement.unrunnable)
    return Requirement(
        requirement.resources,
        unrunnable=unrunnable,
        processing=tasks - unrunnable,
        seconds=part * requirement.seconds,
        unknown=math.ceil(part * requirement.unknown),
    )


def falls_back(*, active: bool, after_seconds: float, waited_seconds: float, tasks: int) -> bool:
    """True if the tasks of a pool without workers run on other pools' workers now (`fallback`).

    `active`: whether they do already. `tasks`: how many run or could run, elsewhere included, of those for which no
    worker is ready that offers what they want by itself: without any there is nothing to lend. One ready worker is
    enough to return, because what has begun elsewhere ends there, and Dask gives the rest to the pool.
    """
    return bool(tasks) and (active or waited_seconds >= after_seconds)
