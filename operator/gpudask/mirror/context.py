"""What the mirror needs of the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gpudask.api.limits import Limits
from gpudask.clients.events import EventRecorder
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.scheduler import SchedulerClient


class Context(Protocol):
    """The part of `reconcile.context.Context` that the mirror uses: clients, limits and the time."""

    @property
    def api(self) -> Kubernetes: ...  # noqa: D102
    @property
    def schedulers(self) -> SchedulerClient: ...  # noqa: D102
    @property
    def events(self) -> EventRecorder: ...  # noqa: D102
    @property
    def limits(self) -> Limits: ...  # noqa: D102
    @property
    def clock(self) -> Callable[[], float]: ...  # noqa: D102
    @property
    def server_ahead(self) -> Callable[[], float]: ...  # noqa: D102
    @property
    def recheck_seconds(self) -> float: ...  # noqa: D102
    def wall_time(self) -> float: ...  # noqa: D102
