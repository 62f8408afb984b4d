"""The hash of what a spec asks of a pod: a pod whose hash differs is outdated.

It is taken from the spec as written, not from the rendered object, and values equal to the default are left out:
a new operator version that renders differently restarts nothing. So a default, once published, stays. One exception:
workers that dial the scheduler's pod, since those of an older version never find its successor.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from gpudask.api import addresses
from gpudask.api.pool import Pool
from gpudask.api.spec import Spec

Made = TypeVar("Made")


class Memo(Generic[Made]):
    """A cache of values made of frozen objects, such as hashes, and pods but for their names.

    At most `size` values; those asked for least recently go first, and those of objects that are gone. The objects are
    told apart by identity: a cluster's spec is parsed once a generation, and comparing two of hundreds of kilobytes
    would cost as much as making it anew.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[Hashable, tuple[tuple[weakref.ref[Any], ...], Made]] = {}

    def get(self, objects: tuple[Any, ...], make: Callable[[], Made], *, more: Hashable = None) -> Made:
        """The cached result of `make` for these very objects, and for `more`, which is compared by value."""
        key = tuple(id(item) for item in objects), more
        known = self._values.pop(key, None)
        if known is None or any(there() is not item for there, item in zip(known[0], objects, strict=True)):
            references = tuple(weakref.ref(item, lambda _: self._values.pop(key, None)) for item in objects)
            known = references, make()
        self._values[key] = known
        while len(self._values) > self._size:
            del self._values[next(iter(self._values))]
        return known[1]


_SHARED = {"image", "image_pull_policy", "image_pull_secrets", "env", "config", "template", "protocol"}
_hashes: Memo[str] = Memo(10_000)  # some hundred bytes each; a pass asks for the same one many times
_shared_texts: Memo[str] = Memo(100)  # as large as the specs
# What sizes or steers a pool but changes no pod.
_NOT_OF_A_POD = {"replicas", "autoscale", "accepts", "held_data", "drain_timeout", "recycle", "fallback"}


def of_scheduler(spec: Spec) -> str:
    """The hash of the scheduler pod."""
    return _hashes.get((spec, spec.scheduler), lambda: _of_scheduler(spec))


def of_worker(spec: Spec, pool: Pool) -> str:
    """The hash of the pods of `pool`."""
    return _hashes.get((spec, pool), lambda: _of_worker(spec, pool))


def _of_scheduler(spec: Spec) -> str:
    section = spec.scheduler.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"service"})
    return _digest({"scheduler": section}, spec)


def _of_worker(spec: Spec, pool: Pool) -> str:
    not_of_a_pod = _NOT_OF_A_POD if spec.own_protocol(pool) else {*_NOT_OF_A_POD, "protocol"}
    section = pool.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=not_of_a_pod)
    dials = {"dials": "pod"} if addresses.needs_headless(spec.protocol) else {}
    return _digest({"pool": section, "gpu": pool.gpu is not None, **dials}, spec)


def _digest(own: dict[str, Any], spec: Spec) -> str:
    """The hash of `own`, with the fields that all pods share under `shared`, as one JSON object with sorted keys.

    What is shared may be large, and is written out once for all pools.
    """
    parts = {name: json.dumps(value, sort_keys=True) for name, value in own.items()}
    parts["shared"] = _shared_texts.get((spec,), lambda: _shared(spec))
    text = ", ".join(f'"{name}": {parts[name]}' for name in sorted(parts))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()[:10]


def _shared(spec: Spec) -> str:
    shared = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=_SHARED)
    return json.dumps(shared, sort_keys=True)
