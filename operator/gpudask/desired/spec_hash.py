"""What a user asked of a pod, as a short hash: a pod whose hash differs is out of date.

It is taken from the user's words, not from the rendered object, and values equal to the default are left out:
a new operator version that renders differently restarts nothing. So a default, once published, stays.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gpudask.api.pool import Pool
from gpudask.api.spec import Spec

_SHARED = {"image", "image_pull_policy", "image_pull_secrets", "env", "config", "template", "protocol"}
# What sizes or steers a pool but changes no pod.
_NOT_OF_A_POD = {"replicas", "autoscale", "accepts", "held_data", "drain_timeout", "recycle", "fallback"}


def of_scheduler(spec: Spec) -> str:
    """The hash of the scheduler pod."""
    section = spec.scheduler.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"service"})
    return _digest({"shared": _shared(spec), "scheduler": section})


def of_worker(spec: Spec, pool: Pool) -> str:
    """The hash of the pods of `pool`."""
    section = pool.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_OF_A_POD)
    return _digest({"shared": _shared(spec), "pool": section, "gpu": pool.gpu is not None})


def _shared(spec: Spec) -> Any:
    return spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=_SHARED)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
