"""What a user asked of a pod, as a short hash: a pod whose hash differs is out of date.

It is taken from the user's words, not from the rendered object, and values equal to the default are left out:
a new operator version that renders differently restarts nothing. So a default, once published, stays. One exception:
workers that dial the scheduler's pod, since those of an older version never find its successor.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from gpudask.api import addresses
from gpudask.api.pool import Pool
from gpudask.api.spec import Scheduler, Spec

Section = TypeVar("Section", Pool, Scheduler)

_SHARED = {"image", "image_pull_policy", "image_pull_secrets", "env", "config", "template", "protocol"}
_MOST_HASHES = 10_000  # some hundred bytes each
_hashes: dict[tuple[int, int], tuple[weakref.ref[Spec], weakref.ref[Any], str]] = {}
# What sizes or steers a pool but changes no pod.
_NOT_OF_A_POD = {"replicas", "autoscale", "accepts", "held_data", "drain_timeout", "recycle", "fallback"}


def of_scheduler(spec: Spec) -> str:
    """The hash of the scheduler pod."""
    return _kept(spec, spec.scheduler, _of_scheduler)


def of_worker(spec: Spec, pool: Pool) -> str:
    """The hash of the pods of `pool`."""
    return _kept(spec, pool, _of_worker)


def _kept(spec: Spec, section: Section, make: Callable[[Spec, Section], str]) -> str:
    """What `make` makes of these very objects. They are frozen, and a pass asks for the same hash many times."""
    key = id(spec), id(section)
    known = _hashes.get(key)
    if known is not None and known[0]() is spec and known[1]() is section:
        return known[2]
    if len(_hashes) >= _MOST_HASHES:
        _hashes.clear()
    made = make(spec, section)
    _hashes[key] = weakref.ref(spec), weakref.ref(section), made
    return made


def _of_scheduler(spec: Spec, _: Scheduler) -> str:
    section = spec.scheduler.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"service"})
    return _digest({"shared": _shared(spec), "scheduler": section})


def _of_worker(spec: Spec, pool: Pool) -> str:
    section = pool.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_OF_A_POD)
    dials = {"dials": "pod"} if addresses.needs_headless(spec.protocol) else {}
    return _digest({"shared": _shared(spec), "pool": section, "gpu": pool.gpu is not None, **dials})


def _shared(spec: Spec) -> Any:
    return spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=_SHARED)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
