"""The limits between which a pool follows demand."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpudask.api.model import Model
from gpudask.api.rules import Rule
from gpudask.api.values import DURATION_PATTERN, Duration, seconds

MAX_REPLICAS = 5000


class Autoscale(Model):
    """Limits between which a pool follows demand. All counts are pods."""

    rules = (
        Rule(
            "self.min <= self.max",
            "min is larger than max: raise max or lower min",
            lambda autoscale: autoscale.min <= autoscale.max,
        ),
        Rule(
            f"type(self.targetDuration) != string || !self.targetDuration.matches('{DURATION_PATTERN}')"
            " || duration(self.targetDuration) > duration('0s')",
            "the queue cannot clear in no time: write a duration above zero, such as 30s",
            lambda autoscale: autoscale.target_duration_seconds > 0,
            ".targetDuration",
        ),
    )

    min: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="pods that stay without demand")] = 0
    max: Annotated[int, Field(ge=1, le=MAX_REPLICAS, description="pods at most")]
    idle_timeout: Annotated[
        Duration, Field(description="how long a pod has had no work of its pool's own before it leaves")
    ] = "60s"
    target_duration: Annotated[
        Duration, Field(description="in what time the queue should clear, where durations are known")
    ] = "30s"

    look_ahead: Annotated[
        bool,
        Field(description="whether a pod starts for tasks whose inputs will be there by the time it is ready"),
    ] = True

    @property
    def idle_timeout_seconds(self) -> float:
        """`idleTimeout` in seconds."""
        return seconds(self.idle_timeout)

    @property
    def target_duration_seconds(self) -> float:
        """`targetDuration` in seconds."""
        return seconds(self.target_duration)
