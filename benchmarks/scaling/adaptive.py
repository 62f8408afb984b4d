"""A policy as Dask's `Adaptive`, one for each pool, and told of the pool's own demand, which the real one cannot see.

From distributed 2026.7.1, `Scheduler.adaptive_target`, `workers_to_close` and `AdaptiveCore`: the target is the total
work by the target duration (5 s by default; unknown tasks count 0.5 s), at most the tasks that are ready; looked at
once a second; what is above it is closed once three looks in a row say so: first those that have not come, then idle
ones. Busy workers are spared here.
"""

from __future__ import annotations

import math
from collections import Counter

from benchmarks.scaling.world import Contestant, World
from gpudask.planning.observed.pods import Pod

TARGET_DURATION_SECONDS = 5.0
INTERVAL_SECONDS = 1.0
WAIT_COUNT = 3
UNKNOWN_SECONDS = 0.5


class Adaptive(Contestant):
    """One loop over all pools, each with counts of its own."""

    title = "adaptive"

    def __init__(self) -> None:
        self._looks: Counter[str] = Counter()  # pod's uid -> looks in a row that would close it

    def begin(self, world: World) -> None:
        """Look at once, then every second."""
        self._world = world
        self._look()

    def _look(self) -> None:
        for name, pool in self._world.trace.by_name.items():
            if pool.autoscale is not None:
                target = min(max(self._target(name), pool.autoscale.min), pool.autoscale.max)
                self._move(name, target)
        self._world.clock.after(INTERVAL_SECONDS, self._look)

    def _target(self, pool: str) -> int:
        trace = self._world.trace
        seconds, pods = 0.0, 0.0
        for resources, able in trace.serving.items():
            if able[:1] == (pool,):
                work, tasks = self._world.scheduler.work(resources, unknown_seconds=UNKNOWN_SECONDS)
                seconds += work / trace.slots(pool, resources)
                pods += tasks / trace.slots(pool, resources)
        return min(math.ceil(seconds / TARGET_DURATION_SECONDS), math.ceil(pods))

    def _move(self, pool: str, target: int) -> None:
        pods = [pod for pod in self._world.kubernetes.pods.values() if pod.pool == pool and not pod.deleting]
        for _ in range(target - len(pods)):
            self._world.create(pool)
        surplus = self._surplus(pods, len(pods) - target)
        self._looks = Counter({uid: n for uid, n in self._looks.items() if uid in surplus or uid not in _uids(pods)})
        for uid, pod in surplus.items():
            self._looks[uid] += 1
            if self._looks[uid] >= WAIT_COUNT:
                del self._looks[uid]
                self._world.delete(pod)

    def _surplus(self, pods: list[Pod], count: int) -> dict[str, Pod]:
        """At most `count` that have not come or are idle."""
        coming = [pod for pod in pods if not self._world.scheduler.of_pod(pod)]
        idle = [
            pod
            for pod in pods
            if (processes := self._world.scheduler.of_pod(pod)) and not any(p.running for p in processes)
        ]
        return {pod.uid: pod for pod in [*coming, *idle][: max(0, count)]}


def _uids(pods: list[Pod]) -> set[str]:
    return {pod.uid for pod in pods}
