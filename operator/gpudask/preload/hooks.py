"""What of distributed's internals each feature hooks into, checked once at the start.

These are not public: another version may lack one. Then only the feature that needs it is off, and its word says why.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed.scheduler import Scheduler

# feature -> method of the scheduler -> parameters that we pass or receive by name
METHODS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "demand": {"add_plugin": ("plugin",)},
    "fence": {
        "valid_workers": ("ts",),
        "check_idle_saturated": ("ws",),
        "decide_worker_non_rootish": ("ts",),
        "decide_worker_rootish_queuing_disabled": ("ts",),
        "bulk_schedule_unrunnable_after_adding_worker": ("ws",),
        "stimulus_queue_slots_maybe_opened": ("stimulus_id",),
        "handle_worker_status_change": ("status", "worker", "stimulus_id"),
        "transitions": ("recommendations", "stimulus_id"),
    },
    "retire": {
        "handle_worker_status_change": ("status", "worker", "stimulus_id"),
        "_reschedule": ("key", "stimulus_id"),
        "request_acquire_replicas": ("addr", "keys", "stimulus_id"),
        "request_remove_replicas": ("addr", "keys", "stimulus_id"),
        "broadcast": ("msg", "workers", "on_error"),
        "transition": ("key", "finish", "stimulus_id"),
        "transitions": ("recommendations", "stimulus_id"),
    },
    "offers": {
        "add_resources": ("worker", "resources"),
        "broadcast": ("msg", "workers", "on_error"),
        "bulk_schedule_unrunnable_after_adding_worker": ("ws",),
        "transitions": ("recommendations", "stimulus_id"),
    },
    "sick": {},
    "rebalance": {
        "_reschedule": ("key", "stimulus_id"),
        "valid_workers": ("ts",),
        "get_comm_cost": ("ts", "ws"),
        "_get_prefix_duration": ("prefix",),
    },
}
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "demand": ("tasks", "task_prefixes", "workers", "running", "queued", "unrunnable", "replicated_tasks", "plugins"),
    "fence": ("running", "workers", "idle", "idle_task_count", "n_tasks", "handlers", "stream_handlers", "extensions"),
    "retire": ("running", "workers", "stream_comms", "stream_handlers", "extensions"),
    "offers": ("running", "workers", "handlers"),
    "sick": ("stream_handlers",),
    "rebalance": ("running", "extensions", "stream_handlers"),
}


def missing_hooks(scheduler: Scheduler) -> dict[str, str]:
    """Return feature -> `""` when everything it needs is there, else what is missing."""
    return {feature: _missing(scheduler, feature) for feature in METHODS}


def _missing(scheduler: Scheduler, feature: str) -> str:
    lacking = [f"Scheduler.{name} is missing" for name in ATTRIBUTES[feature] if not hasattr(scheduler, name)]
    for name, parameters in METHODS[feature].items():
        method = getattr(scheduler, name, None)
        if not callable(method):
            lacking.append(f"Scheduler.{name} is missing")
            continue
        known = inspect.signature(method).parameters
        lacking += [f"Scheduler.{name} takes no {parameter}" for parameter in parameters if parameter not in known]
    return "; ".join(lacking)
