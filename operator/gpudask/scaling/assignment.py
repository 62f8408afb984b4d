"""Which pool serves which demand: the cheapest that can, and what no pool can serve."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudask.api.pool import Pool
from gpudask.api.spec import Spec
from gpudask.scaling.demand import Requirement


@dataclass(frozen=True, slots=True)
class Share:
    """The demand that one pool has to serve; `pods` are fractions of full pods."""

    unrunnable: int = 0
    processing: int = 0
    pods: float = 0.0
    pods_unknown: float = 0.0
    pod_seconds: float = 0.0

    @classmethod
    def of(cls, requirement: Requirement, slots: int) -> Share:
        """All of `requirement`, where one pod runs `slots` such tasks at once."""
        return cls(
            unrunnable=requirement.unrunnable,
            processing=requirement.processing,
            pods=requirement.active / slots,
            pods_unknown=requirement.unknown / slots,
            pod_seconds=requirement.seconds / slots,
        )

    def __add__(self, other: Share) -> Share:
        """Both together."""
        return Share(
            unrunnable=self.unrunnable + other.unrunnable,
            processing=self.processing + other.processing,
            pods=self.pods + other.pods,
            pods_unknown=self.pods_unknown + other.pods_unknown,
            pod_seconds=self.pod_seconds + other.pod_seconds,
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """Every pool's share, and the requirements that no pool can serve."""

    shares: dict[str, Share]
    unserved: tuple[Requirement, ...]


def slots_per_pod(spec: Spec, pool: Pool, requirement: Requirement) -> int:
    """How many tasks of `requirement` one pod of `pool` runs at once, 0 where it can run none.

    A worker runs at most a task a thread; each process has its own offer, so a task must fit one process.
    """
    if not requirement.resources and spec.accepts(pool) == "annotated":
        return 0
    offered = pool.offered_resources
    fits = [int(offered.get(name, 0.0) // amount) for name, amount in requirement.resources if amount > 0]
    return pool.workers_per_pod * min([pool.threads_per_worker, *fits])


def cost_order(spec: Spec) -> list[Pool]:
    """Pools from cheap to dear: without GPUs first, then fewer GPUs a pod, then as declared."""
    return sorted(spec.pools, key=lambda pool: pool.gpus_per_pod)


def assign(spec: Spec, requirements: tuple[Requirement, ...]) -> Assignment:
    """Give each requirement to the cheapest pool that can serve it (and that may have a pod at all)."""
    shares = {pool.name: Share() for pool in spec.pools}
    unserved = []
    for requirement in requirements:
        if not requirement.active:
            continue
        able = [pool for pool in cost_order(spec) if slots_per_pod(spec, pool, requirement) and _may_exist(spec, pool)]
        if not able:
            unserved.append(requirement)
            continue
        shares[able[0].name] += Share.of(requirement, slots_per_pod(spec, able[0], requirement))
    return Assignment(shares, tuple(unserved))


def _may_exist(spec: Spec, pool: Pool) -> bool:
    overridden = {override.pool: override.replicas for override in spec.overrides}
    return overridden.get(pool.name, pool.replicas) != 0


def refusal(spec: Spec, requirement: Requirement) -> str:
    """Why no pool serves `requirement`, in words that name what each pool offers."""
    tasks = f"{requirement.active} task{'s' if requirement.active != 1 else ''}"
    if not requirement.resources:
        held = [pool.name for pool in spec.pools if spec.accepts(pool) == "any"]
        why = f"pool {' and pool '.join(held)} set to 0 pods" if held else "every pool accepts annotated tasks only"
        return f"{tasks} without resource annotations: {why}"
    want = "wants" if requirement.active == 1 else "want"
    return f"{tasks} {want} {requirement}; {', '.join(_offer(spec, pool, requirement) for pool in spec.pools)}"


def _offer(spec: Spec, pool: Pool, requirement: Requirement) -> str:
    offered = replace(requirement, resources=tuple(sorted(pool.offered_resources.items())))
    held = " but is set to 0 pods" if slots_per_pod(spec, pool, requirement) and not _may_exist(spec, pool) else ""
    return f"pool {pool.name} offers {offered} a worker{held}"
