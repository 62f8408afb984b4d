"""What the loops of all clusters share."""

from __future__ import annotations

import hashlib
import hmac
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from gpudask.api.json_object import Json
from gpudask.api.limits import Limits
from gpudask.api.resource import ANNOTATION_SPEC_HASH, Identity
from gpudask.clients.caches import Caches
from gpudask.clients.clock import Clock
from gpudask.clients.events import EventRecorder
from gpudask.clients.fair_queue import FairQueue
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.scheduler import SchedulerClient
from gpudask.planning.observed import fields
from gpudask.planning.observed.parser import owner_key
from gpudask.planning.observed.pods import Pod, on_operator_clock
from gpudask.reconcile.memory import KnownStarts
from gpudask.reconcile.preload import Preloads
from gpudask.reconcile.rate_limiter import FairRateLimiter
from gpudask.reconcile.schema import Schema
from gpudask.reconcile.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Owned:
    """A Service or ConfigMap of a cluster, as far as drift repair needs it. `digest`: of what was applied last."""

    uid: str
    name: str
    kind: str
    owner: str
    version: str
    digest: str = ""


def observe_owned(kind: str) -> Callable[[Json], Owned]:
    """How objects of `kind` are reduced; what has not their shape raises UnreadableError."""

    def reduce(body: Json) -> Owned:
        meta = fields.mapping(body, "metadata")
        uid, name = fields.identifier(meta, "uid"), fields.identifier(meta, "name")
        digest = fields.text(fields.mapping(meta, "annotations"), ANNOTATION_SPEC_HASH)
        return Owned(uid, name, kind, owner_key(meta), fields.version(meta), digest)

    return reduce


@dataclass
class Context:
    """Clients, caches and settings.

    `clock`: seconds since the epoch, which never jump; `server_ahead`, `wall_ahead`: as `clients.clock.Clock`'s.

    Turns are shared by all clusters, and fairly by namespace. `pass_turns`: to begin a pass, whose plan holds the event
    loop. `count_turns`: of passes in which nothing but counts is new. `figure_turns`: of statuses in which
    nothing but live figures is. A pass costs the operator some milliseconds of CPU, a status the API server.
    `first_turns`: of first passes, a thousand of them where an operator begins to lead: not all at once,
    so that what one of them asks for is answered before the others have been looked at.
    `check_turns`: of clusters whose objects beside the pods somebody applied who led before.
    `starts`: how long pods took to start, in all clusters. `random`: numbers from 0 to 1, the jitter of back-offs.
    `look_again_seconds`: how long after a 404 of a cluster it is looked for again. `patience_seconds`: as `Retries`.
    `key`: empty until this operator leads for the first time. `operator_namespace`: whose pods of ours may connect
    where `network_policies` are made. `limits`: what users may ask for. `schema`: the resource's, as it is served.
    """

    api: Kubernetes
    schedulers: SchedulerClient
    events: EventRecorder
    pods: Caches
    support: dict[str, Caches]
    preloads: Preloads
    key: bytes
    operator_namespace: str = "default"
    network_policies: bool = True
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = field(default_factory=lambda: Clock().now)
    server_ahead: Callable[[], float] = lambda: 0.0
    wall_ahead: Callable[[], float] = lambda: 0.0
    pass_turns: FairQueue = field(default_factory=lambda: FairQueue(1, 1))
    count_turns: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(100.0))
    figure_turns: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(40.0))
    first_turns: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(200.0, 4.0))
    check_turns: FairRateLimiter = field(default_factory=lambda: FairRateLimiter(5.0))
    starts: KnownStarts = field(default_factory=KnownStarts)
    supervisor: Supervisor = field(default_factory=Supervisor)
    schema: Schema = field(default_factory=Schema)
    random: Callable[[], float] = random.random
    look_again_seconds: float = 1.0
    patience_seconds: float = 1.0
    nonce: Callable[[], str] = field(default=lambda: secrets.token_hex(3)[:5])

    def wall_time(self) -> float:
        """The time by which people ask for something, in seconds since the epoch."""
        return self.clock() + self.wall_ahead()

    def knows(self, namespace: str) -> bool:
        """Whether the caches of `namespace` are complete: half a cache looks like missing pods."""
        return all(caches.know(namespace) for caches in (self.pods, self.preloads.caches, *self.support.values()))

    def token(self, uid: str) -> str:
        """The token of the cluster with this uid: derived, so that no Secret need be written or read."""
        return hmac.new(self.key, uid.encode(), hashlib.sha256).hexdigest()

    def pods_of(self, cluster: Identity) -> tuple[Pod, ...]:
        """The pods of a cluster, by name."""
        return tuple(sorted(self.pods.owned(cluster.owner_key), key=lambda pod: pod.name))


def pod_sighting(clock: Clock) -> Callable[[Pod, Pod | None, float], Pod]:
    """How a cache of pods brings their times to `clock`, for `Reflector`'s `sighted`."""

    def sight(pod: Pod, before: Pod | None, since: float) -> Pod:
        return on_operator_clock(pod, before, now=clock.now(), server_ahead=clock.server_ahead(), since=since)

    return sight
