"""The base class of the preload's parts: what each needs of distributed, and the plugin hooks that it gets.

What parts hook into is not public: another version of distributed may lack it. Then only that part is off, and those
that depend on it; `features` in the answer says why.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from .desired import Desired

NONE: Mapping[str, Any] = MappingProxyType({})


class Part:
    """One part of the preload. These methods are called only while it is on; by default they do nothing."""

    feature = ""  # its key in `features`, if it has one of its own
    attributes: tuple[str, ...] = ()  # of the scheduler, that it needs
    methods: Mapping[str, tuple[str, ...]] = NONE  # of the scheduler -> parameters that we pass or receive by name
    depends_on: Mapping[str, str] = NONE  # feature -> why this part is off without it
    error = ""  # why it fails at work at present: as good as off

    def start(self) -> None:
        """Hook into the scheduler. What it raises switches the part off."""

    def stop(self) -> None:
        """Cancel timers and tasks: the scheduler closes."""

    def apply(self, desired: Desired) -> dict[str, str]:  # noqa: ARG002
        """Do what the operator wants; return pod -> reason, for those that may not leave now."""
        return {}

    def add_worker(self, ws: WorkerState) -> None:
        """Follow `SchedulerPlugin.add_worker`."""

    def remove_worker(self, address: str) -> None:
        """Follow `SchedulerPlugin.remove_worker`."""

    def restart(self) -> None:
        """Follow `SchedulerPlugin.restart`: the scheduler has forgotten all tasks."""

    def complete_demand(self, entries: list[dict[str, Any]]) -> None:
        """Add fields to the entries of the answer's `demand`."""

    def complete_workers(self, rows: list[dict[str, Any]]) -> None:
        """Add to the rows of the answer's `workers`."""


def why_off(part: Part, scheduler: Scheduler, features: Mapping[str, str]) -> str:
    """Return why a part cannot work: what it depends on is off, or distributed lacks something; `""` if it can."""
    off = [reason for feature, reason in part.depends_on.items() if features[feature]]
    lacking = [f"Scheduler.{name} is missing" for name in part.attributes if not hasattr(scheduler, name)]
    for name, parameters in part.methods.items():
        method = getattr(scheduler, name, None)
        if not callable(method):
            lacking.append(f"Scheduler.{name} is missing")
            continue
        known = inspect.signature(method).parameters
        lacking += [f"Scheduler.{name} takes no {parameter}" for parameter in parameters if parameter not in known]
    return "; ".join(lacking or off)
