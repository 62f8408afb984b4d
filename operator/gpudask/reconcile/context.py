"""The context that the loops of all clusters share: clients, caches, limits and settings."""

from __future__ import annotations

import hashlib
import hmac
import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from gpudask.api import Json
from gpudask.api.limits import Limits
from gpudask.api.resource import Identity
from gpudask.clients.clock import Clock
from gpudask.clients.events import EventRecorder
from gpudask.clients.flow_control import FairQueue, FairRateLimiter
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.recheck import RECHECK_SECONDS
from gpudask.clients.reflector import Caches
from gpudask.clients.scheduler import SchedulerClient
from gpudask.metrics.operator import Metrics
from gpudask.planning.observed.clocks import Clocks
from gpudask.planning.observed.pods import Pod, on_operator_clock
from gpudask.reconcile.loop_memory import KnownStarts
from gpudask.reconcile.namespace_limits import NamespaceLimits
from gpudask.reconcile.preload_configmaps import Preloads
from gpudask.reconcile.records.store import Records
from gpudask.reconcile.served_schema import ServedSchema
from gpudask.reconcile.supervisor import Supervisor


@dataclass
class Context:
    """Clients, caches, limiters and settings.

    `clock`: seconds since the epoch, which never jump; `server_ahead`, `wall_ahead` and `unanswered_at`: as
    `clients.clock.Clock`'s.

    All clusters share the queue and the limiters, fairly by namespace. A pass costs the operator some milliseconds of
    CPU, a status the API server.

    - `pass_queue`: for starting a pass, whose plan holds the event loop.
    - `first_pass_limiter`: for first passes, a thousand of them where an operator becomes the leader: not all at once,
      so that the first one's requests are answered before the others have been planned.
    - `counts_limiter`: for answers of schedulers in which nothing but counts of tasks is new.
    - `answers_limiter`: for all others: urgent ones, and counts before their turn.
    - `live_status_limiter`: for statuses in which nothing but live figures is new.
    - `reapply_limiter`: for applying again the objects beside the pods that an earlier leader applied.

    `dependents`: the objects beside the pods, by kind. `runners`: the pods of jobs' programs.
    `job_waits_for`: by a job's metadata, what has to happen before its first attempt; empty: nothing.
    `starts`: how long pods took to start, in all clusters.
    `random`: numbers from 0 to 1, the jitter of back-offs. `recheck_seconds`: how long after a 404 of a cluster it is
    asked for again. `deadline_seconds`: as `Retries`. `key`: empty until this operator leads for the first time.
    `operator_namespace`: whose operator pods may connect where `network_policies` are made. `limits`: what users may
    ask for. `default_image`: of clusters whose manifest names none; empty: such a cluster is refused. `schema`: the
    resource's, as it is served. `attribution`: names of the labels and annotations that say whose a cluster is.
    `records`: of what becomes of clusters; None: none are written.
    """

    api: Kubernetes
    schedulers: SchedulerClient
    events: EventRecorder
    pods: Caches
    dependents: dict[str, Caches]
    preloads: Preloads
    key: bytes
    runners: Caches = field(default_factory=lambda: Caches([]))
    job_waits_for: Callable[[Json], str] = lambda _metadata: ""
    operator_namespace: str = "default"
    network_policies: bool = True
    limits: Limits = field(default_factory=Limits)
    records: Records | None = None
    default_image: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    attribution: tuple[str, ...] = ()
    clock: Callable[[], float] = field(default_factory=lambda: Clock().now)
    server_ahead: Callable[[], float] = lambda: 0.0
    unanswered_at: Callable[[], float] = lambda: -math.inf
    wall_ahead: Callable[[], float] = lambda: 0.0
    namespace_limits: NamespaceLimits = field(init=False)
    pass_queue: FairQueue = field(default_factory=lambda: FairQueue(1, 1))
    counts_limiter: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(40.0))
    answers_limiter: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(100.0, 20.0))
    live_status_limiter: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(40.0))
    first_pass_limiter: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(200.0, 4.0))
    reapply_limiter: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(5.0))
    starts: KnownStarts = field(default_factory=KnownStarts)
    supervisor: Supervisor = field(default_factory=Supervisor)
    schema: ServedSchema = field(default_factory=ServedSchema)
    random: Callable[[], float] = random.random
    recheck_seconds: float = RECHECK_SECONDS
    deadline_seconds: float = 1.0
    nonce: Callable[[], str] = field(default=lambda: secrets.token_hex(3)[:5])

    def __post_init__(self) -> None:
        self.namespace_limits = NamespaceLimits(self.limits, self.pods, self.runners)

    def clocks(self) -> Clocks:
        """How far the other clocks are ahead of `clock` now."""
        return Clocks(self.server_ahead(), self.wall_ahead())

    def wall_time(self) -> float:
        """This machine's wall clock, by which people set times, in seconds since the epoch."""
        return self.clock() + self.wall_ahead()

    def knows(self, namespace: str) -> bool:
        """Whether the caches of `namespace` are complete: in half a cache pods seem to be missing."""
        return all(caches.know(namespace) for caches in (self.pods, self.preloads.caches, *self.dependents.values()))

    def token(self, uid: str) -> str:
        """The token of the cluster with this uid: derived, so that no Secret need be written or read."""
        return hmac.new(self.key, uid.encode(), hashlib.sha256).hexdigest()

    def pods_of(self, cluster: Identity) -> tuple[Pod, ...]:
        """The pods of a cluster, by name."""
        return tuple(sorted(self.pods.owned(cluster.owner_key), key=lambda pod: pod.name))


def merge_pods(clock: Clock) -> Callable[[Pod, Pod | None, float], Pod]:
    """The `merge` of the pods' reflector: it converts their times to those of `clock`."""

    def merge(pod: Pod, before: Pod | None, since: float) -> Pod:
        return on_operator_clock(pod, before, now=clock.now(), server_ahead=clock.server_ahead(), since=since)

    return merge
