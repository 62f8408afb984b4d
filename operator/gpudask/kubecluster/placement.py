"""The pool of a worker, and whether the present task has a GPU.

Used inside Dask workers, where only gpudask itself is installed: standard library only, and what the
worker has loaded.
"""

from __future__ import annotations

import re
import sys

GPU_RESOURCE = "GPU"
# <cluster>-<pool>-worker-<n>-<nonce>[-<GPU>]: docs/preload-protocol.md
_WORKER_NAME = re.compile(r"^(?P<cluster>.+)-(?P<pool>[a-z][a-z0-9]{0,14})-worker-\d+-[0-9a-z]{5}(-\d+)?$")


def has_gpu() -> bool:
    """True if the calling task runs on a worker that offers the Dask resource `GPU`.

    A worker of another pool on which GPU tasks fall back (`fallback` in the pool) offers it too, but has none: False.
    Cheap enough to call in every task. The device may be real or a stand-in (dask-cuda's device-less mode).
    Outside a task the answer is False.
    """
    # A process that runs tasks has loaded this module; one that has not need not pay for importing it.
    module = sys.modules.get("distributed.worker")
    if module is None:
        return False
    try:
        worker = module.get_worker()
    except ValueError:  # not in a task
        return False
    lent = getattr(worker, "gpudask_lent", ())  # set by preload/offers.py
    return GPU_RESOURCE not in lent and worker.state.total_resources.get(GPU_RESOURCE, 0) > 0


def pool_of(worker_name: object, cluster: str) -> str:
    """The pool of a Dask worker's name, `""` where it is none of `cluster`'s."""
    match = _WORKER_NAME.match(str(worker_name))
    return match["pool"] if match and match["cluster"] == cluster else ""
