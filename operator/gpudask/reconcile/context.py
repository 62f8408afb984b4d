"""What the loops of all clusters share."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpudask.clients.events import EventRecorder
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.reflector import Reflector
from gpudask.clients.scheduler import SchedulerClient
from gpudask.planning.observed import Pod
from gpudask.planning.reduce import owner_uid

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owned:
    """A Service or ConfigMap of a cluster, as far as drift repair needs it."""

    uid: str
    name: str
    kind: str
    owner: str
    version: str


def observe_owned(kind: str) -> Callable[[Json], Owned]:
    """How objects of `kind` are reduced."""

    def reduce(body: Json) -> Owned:
        meta = body["metadata"]
        return Owned(meta["uid"], meta["name"], kind, owner_uid(meta), meta["resourceVersion"])

    return reduce


class Caches:
    """One kind's reflectors: one for the whole cluster, or one for each watched namespace."""

    def __init__(self, reflectors: list[Reflector[Any]]) -> None:
        self.reflectors = reflectors

    def owned(self, owner: str) -> tuple[Any, ...]:
        """The objects whose controller has this uid."""
        return tuple(item for reflector in self.reflectors for item in reflector.owned(owner))

    def lay_over(self, namespace: str, body: Json) -> None:
        """Take in what one of our own writes returned."""
        self._of(namespace).lay_over(body)

    def forget(self, namespace: str, uid: str) -> None:
        """Take out what is gone."""
        self._of(namespace).forget(uid)

    def _of(self, namespace: str) -> Reflector[Any]:
        marker = f"/namespaces/{namespace}/"
        return next((r for r in self.reflectors if marker in r.path), self.reflectors[0])


@dataclass
class Context:
    """Clients, caches and settings. `clock`: seconds since the epoch."""

    api: Kubernetes
    schedulers: SchedulerClient
    events: EventRecorder
    pods: Caches
    support: dict[str, Caches]
    preload: dict[str, str]
    key: bytes
    clock: Callable[[], float] = time.time
    nonce: Callable[[], str] = field(default=lambda: secrets.token_hex(3)[:5])

    def token(self, uid: str) -> str:
        """The token of the cluster with this uid: derived, so that no Secret need be read or watched."""
        return hmac.new(self.key, uid.encode(), hashlib.sha256).hexdigest()

    def pods_of(self, uid: str) -> tuple[Pod, ...]:
        """The pods of a cluster, by name."""
        return tuple(sorted(self.pods.owned(uid), key=lambda pod: pod.name))
