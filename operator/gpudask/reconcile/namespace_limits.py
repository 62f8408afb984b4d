"""The limits of a namespace's clusters and jobs together: `podsPerNamespace` and `creationsPerSecond` of the chart.

What counts is the pods that are there, not what specs may grow to: clusters share the room as those of a ResourceQuota
do, and who finds none waits for it in the same way. Pods of neither clusters nor jobs are a ResourceQuota's to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from gpudask.api.limits import Limits
from gpudask.clients.errors import ApiError
from gpudask.clients.flow_control import RateLimiter
from gpudask.clients.reflector import Caches


@dataclass(frozen=True, slots=True)
class Admission:
    """How many of the `pods` asked for may be created now; what refuses the others, or until when they wait.

    `not_before`: seconds on the operator's clock; 0.0 where nothing has to wait.
    """

    pods: int
    refusal: ApiError | None = None
    not_before: float = 0.0


class NamespaceLimits:
    """Admits creations of pods. `pods`: the caches of all that count, which each creation is entered into."""

    def __init__(self, limits: Limits, *pods: Caches) -> None:
        self._limits = limits
        self._pods = pods
        self._under_way: Counter[str] = Counter()  # by namespace: admitted, and not in the cache yet
        self._rates: dict[str, RateLimiter] = {}

    @contextmanager
    def admit(self, namespace: str, pods: int, now: float) -> Iterator[Admission]:
        """Admit up to `pods` creations, which happen inside of the `with` block."""
        admitted = min(pods, self._room(namespace, pods))
        in_time, not_before = self._in_time(namespace, admitted, now)
        refusal = self._refusal(namespace) if in_time == admitted < pods else None
        self._under_way[namespace] += in_time
        try:
            yield Admission(in_time, refusal, not_before)
        finally:
            self._under_way[namespace] -= in_time
            if not self._under_way[namespace]:
                del self._under_way[namespace]

    def _room(self, namespace: str, wanted: int) -> int:
        most = self._limits.pods_per_namespace
        if most is None:
            return wanted
        there = sum(not pod.finished for caches in self._pods for pod in caches.in_namespace(namespace))
        return max(0, most - there - self._under_way[namespace])

    def _refusal(self, namespace: str) -> ApiError:
        """The error that a ResourceQuota's refusal is, too."""
        message = (
            f"exceeded quota: the clusters and jobs of namespace {namespace} may have"
            f" {self._limits.pods_per_namespace} pods"
            " together: end some, or ask the operator's administrators for limits.podsPerNamespace"
        )
        return ApiError(HTTPStatus.FORBIDDEN, "Forbidden", message, "limits of the namespace")

    def _in_time(self, namespace: str, pods: int, now: float) -> tuple[int, float]:
        """How many of `pods` may be created now, and when the next may, where that is not all."""
        per_second = self._limits.creations_per_second
        if per_second is None or not pods:
            return pods, 0.0
        self._rates = {name: rate for name, rate in self._rates.items() if rate.full_at > now}
        rate = self._rates.setdefault(namespace, RateLimiter(per_second, burst=max(1.0, per_second)))
        for admitted in range(pods):
            if (next_token := rate.available_at(now)) > now:
                return admitted, next_token
            rate.reserve(now)
        return pods, 0.0
