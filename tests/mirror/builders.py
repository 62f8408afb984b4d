"""Objects of the mirror as the operator sees them, and clusters to go with them."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

from gpudask.mirror import objects
from gpudask.mirror.state import MirrorObject
from tests.builders import a_pool
from tests.planning.builders import UID, gpu_pool, scaled

MIXED = [scaled(least=1, most=6), gpu_pool()]
FIXED = [a_pool(replicas=3), gpu_pool()]
CPU_ADAPTED = [{"pool": "cpu", "min": 1, "max": 3, "by": "x"}]


def group(pool: str, size: int | None, *, was: str = "", **fields: Any) -> MirrorObject:
    """The worker group of `pool`; `was`: what the operator wrote."""
    known: Json = {"uid": f"uid-{pool}", "name": f"demo-{pool}", "kind": objects.WORKER_GROUP, "version": "10"}
    known |= {
        "owner": "default/demo",
        "controller": f"default/{UID}",
        "size": size,
        "written": was,
        "editor": "kubectl",
    }
    return MirrorObject(**known | fields)


def autoscaler(minimum: int | None, maximum: int | None, *, was: str | None = None, **fields: Any) -> MirrorObject:
    """The autoscaler as adapt() makes it."""
    known: Json = {"uid": "uid-a", "name": "demo", "kind": objects.AUTOSCALER, "version": "10", "owner": "default/demo"}
    known |= {"controller": "", "minimum": minimum, "maximum": maximum, "written": was, "editor": "python"}
    return MirrorObject(**known | fields)


def stored(body: Json) -> Json:
    """What the API server makes of an object that is created."""
    return body | {"metadata": body["metadata"] | {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": "5"}}
