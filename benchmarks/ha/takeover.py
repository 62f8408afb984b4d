"""One takeover: the leader ends, a worker pod is deleted and a GPU task comes, all at the same moment.

And rest: what two operators ask of the API server and of the schedulers while nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any

from benchmarks.ha.observer import Audit, Observer, Pod, Pool, extra
from benchmarks.ha.replica import Memory, Replica, environment, install, rendered
from benchmarks.testbed.cluster import SimulatedCluster, simulated_cluster
from benchmarks.testbed.manifests import CPU, GPU, NAMESPACE, cluster_name
from benchmarks.testbed.schedulers import LONG_TASK_SECONDS
from benchmarks.testbed.watch import background, until, watching
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.lease import Lease

Json = dict[str, Any]
KILLED, STOPPED, NEITHER = "killed", "stopped", "neither"
"""How the leader ends; `NEITHER`: it goes on, for comparison."""
GRACE_SECONDS = 10.0
"""The chart's terminationGracePeriodSeconds."""
_DEADLINE_SECONDS = 90
_RENEWAL_SECONDS = 3.0  # longer than any leader waits between two renewals
_CALM_SECONDS = 3.0
_GPU_PODS_MAX = 100
# Live figures of a status are written up to five seconds late, and each pod is told once, after a while, that it rests.
_QUIET_SECONDS, _REST_DEADLINE_SECONDS = 15.0, 180.0


@dataclass(frozen=True)
class Takeover:
    """Seconds from the end of the leader. `NEITHER`: from the deletion and the demand.

    `held`: until the Lease names the other; `acts`: until a pod is there that the other made; `gap`: until the GPU pod
    is there, whoever made it. `standby`: what the other held before.
    """

    how: str
    held: float
    acts: float
    gap: float
    standby: Memory


class TwoOperators:
    """A testbed with two operators, and clusters at rest."""

    def __init__(self, testbed: SimulatedCluster, bodies: Sequence[Json], seed: int) -> None:
        self.testbed = testbed
        self.observer = Observer()
        self.audit = Audit(testbed.server.audit_log)
        self.replicas: list[Replica] = []
        self._bodies = bodies
        self._chance = random.Random(seed)  # noqa: S311 - the same each time
        self._turn = 0

    @property
    def leader(self) -> Replica:
        """Who holds the Lease."""
        return next(replica for replica in self.replicas if replica.identity == self.observer.holder)

    @property
    def standby(self) -> Replica:
        """The other."""
        return next(replica for replica in self.replicas if replica.identity != self.observer.holder)

    async def add_replica(self) -> None:
        """Start one more."""
        self.replicas.append(await Replica.start(self.testbed, self._bodies))

    async def at_rest(self) -> None:
        """Wait until two operators are ready, and every pod that is wanted is there and runs."""

        async def rests() -> bool:
            ready = [await replica.ready() for replica in self.replicas]
            run = set(self.testbed.pods.ready_at) >= {pod.name for pod in self.observer.pods.values()}
            return all(ready) and self.observer.complete and run

        await until(rests, "all pods run, and both operators are ready", seconds=_DEADLINE_SECONDS)
        await asyncio.sleep(_CALM_SECONDS)
        self.observer.check()

    async def take_over(self, how: str) -> Takeover:
        """End the leader, put another in its place when all is done, and check what was seen."""
        await asyncio.sleep(self._chance.uniform(0, _RENEWAL_SECONDS))  # anywhere between two renewals
        leader, standby = self.leader, self.standby
        weight, counted = standby.memory, self.observer.gpu_seconds
        mark, began = self.audit.mark(), monotonic()
        if how == KILLED:
            await leader.process.kill()
        elif how == STOPPED:
            leader.process.terminate()
        wanting = self._want_a_gpu()
        actor = leader if how == NEITHER else standby
        gap = asyncio.create_task(self._appears(wanting, set(self.observer.pods)))
        acts = await self._acts(actor, mark)
        gpu_pod = await gap
        assert self.observer.holder == actor.identity, (
            f"{self.observer.holder} holds the Lease, and {actor.identity} acts"
        )
        held = max(0.0, self.observer.held_since - began)
        found = Takeover(how, held, acts.seen_at - began, gpu_pod.seen_at - began, weight)
        if how != NEITHER:
            await self._replace(leader)
        await self.at_rest()
        assert self.observer.gpu_seconds > counted, "GPU pods run, and nobody counts their seconds"
        return found

    async def _acts(self, actor: Replica, mark: int) -> Pod:
        """The first pod that `actor` makes. One is deleted; another, when one who ends has replaced it still."""
        while True:
            deleted = self.observer.of((self._next_cluster(), CPU))[0]
            before = set(self.observer.pods)
            self.observer.released.add(deleted.uid)
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{deleted.name}"
            await self.testbed.api.request("DELETE", path, body={"preconditions": {"uid": deleted.uid}})
            pod = await self._appears(deleted.pool, before)
            if actor.credential in self._makers(pod, mark):
                return pod

    def _makers(self, pod: Pod, mark: int) -> set[str]:
        made = (item for item in self.audit.since(mark) if (item.verb, item.resource) == ("create", "pods"))
        return {item.credential for item in made if item.name == pod.name}

    async def _appears(self, pool: Pool, before: set[str]) -> Pod:
        def new() -> list[Pod]:
            return [pod for pod in self.observer.of(pool) if pod.uid not in before]

        await until(lambda: bool(new()), f"a new pod of {'/'.join(pool)}", seconds=_DEADLINE_SECONDS)
        return new()[0]

    def _want_a_gpu(self) -> Pool:
        """One more long GPU task comes to some cluster: one more pod is wanted."""
        pool = self._next_cluster(), GPU
        self.observer.wanted[pool] += 1
        scheduler = self.testbed.pods.scheduler_of(pool[0])
        scheduler.want(self.observer.wanted[pool], seconds_a_task=LONG_TASK_SECONDS, GPU=1)
        return pool

    def _next_cluster(self) -> str:
        self._turn += 1
        return cluster_name(self._turn % len(self.testbed.addresses))

    async def _replace(self, ended: Replica) -> None:
        await ended.process.until_ended(GRACE_SECONDS)
        self.replicas.remove(ended)
        await self.add_replica()


@contextlib.asynccontextmanager
async def two_operators(clusters: int, cpu_pods: int, *, seed: int) -> AsyncIterator[TwoOperators]:
    """Two operators and so many clusters, each of a scheduler, `cpu_pods` and a GPU pod that is busy."""
    async with simulated_cluster(clusters, audit=True) as testbed, contextlib.AsyncExitStack() as stack:
        bodies = rendered()
        await install(testbed.api, bodies)
        found = TwoOperators(testbed, bodies, seed)
        for number in range(clusters):
            name = cluster_name(number)
            found.observer.wanted |= {(name, ""): 1, (name, CPU): cpu_pods, (name, GPU): 0}
        await stack.enter_async_context(watching(testbed.api, found.observer.see_pod, found.observer.see_cluster))
        await stack.enter_async_context(background(_watch_lease(testbed.api, found)))
        stack.push_async_callback(_end_all, found)
        await found.add_replica()
        await found.add_replica()
        await testbed.add_clusters(_GPU_PODS_MAX, cpu_pods)
        for number in range(clusters):
            found.observer.wanted[cluster_name(number), GPU] = 1
            testbed.pods.scheduler_of(cluster_name(number)).want(1, seconds_a_task=LONG_TASK_SECONDS, GPU=1)
        await found.at_rest()
        yield found


async def _watch_lease(api: Kubernetes, found: TwoOperators) -> None:
    given = environment(rendered(), {"name": "", "uid": ""})
    lease = Lease(api, given["GPUDASK_NAMESPACE"], given["GPUDASK_LEASE"])
    while True:
        async with aclosing(lease.changes()) as changes:
            async for record in changes:
                found.observer.see_lease(record)


async def _end_all(found: TwoOperators) -> None:
    for replica in found.replicas:
        await replica.process.kill()


@dataclass(frozen=True)
class Rest:
    """Requests in `seconds`, watches and those for the Lease left out, by what was asked for; and long polls.

    `lease`: those for the Lease, of both.
    """

    seconds: float
    leader: dict[str, int]
    standby: dict[str, int]
    lease: int
    polls: int

    def rate(self, requests: dict[str, int]) -> float:
        """Requests a second."""
        return sum(requests.values()) / self.seconds


async def at_rest(operators: TwoOperators, seconds: float) -> Rest:
    """Do nothing for so long, once nothing is asked for any more, or after three minutes."""
    leader, standby = operators.leader, operators.standby
    deadline, asked_for = monotonic() + _REST_DEADLINE_SECONDS, True
    while asked_for and monotonic() < deadline:
        mark = operators.audit.mark()
        await asyncio.sleep(_QUIET_SECONDS)
        asked_for = any(extra(operators.audit.since(mark), who.credential) for who in (leader, standby))
    schedulers = operators.testbed.schedulers.by_address.values()
    mark, polled = operators.audit.mark(), sum(each.polls for each in schedulers)
    await asyncio.sleep(seconds)
    requests, polls = operators.audit.since(mark), sum(each.polls for each in schedulers) - polled
    asked = [
        dict(Counter(f"{item.verb} {item.resource}" for item in extra(requests, replica.credential)))
        for replica in (leader, standby)
    ]
    renewals = sum(
        item.resource == "leases" and item.credential in (leader.credential, standby.credential) for item in requests
    )
    return Rest(seconds, asked[0], asked[1], renewals, polls)
