"""A fixed pool: every pool at its maximum from the first submission until all is done."""

from __future__ import annotations

from benchmarks.scaling.world import Contestant, World


class Fixed(Contestant):
    """What people do who give up on scaling."""

    title = "fixed"

    def begin(self, world: World) -> None:
        """Create everything."""
        self._world = world
        for pool in world.trace.by_name:
            for _ in range(world.trace.most_pods(pool)):
                world.create(pool)
        world.wake = self._wake

    def _wake(self, _edge: bool) -> None:
        if self._world.scheduler.done:
            for pod in list(self._world.kubernetes.pods.values()):
                if pod.pool and not pod.deleting:
                    self._world.delete(pod)
