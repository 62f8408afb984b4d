"""Edits by people meanwhile: a wrong image, another size, a change of what is the operator's."""

from __future__ import annotations

from gpudask.api import Json

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.target import NoVictimError, Target, chosen

_MISSING = "localhost/gpudask/missing:1"


@contextmanager
def image_missing(target: Target, pick: float) -> Iterator[str]:
    """A pool gets an image that nobody has, and its own again."""
    cluster = chosen(target.clusters(), pick)
    name, index = cluster["metadata"]["name"], 0 if pick * 1000 % 1 < 0.5 else 1
    pool = cluster["spec"]["pools"][index]["name"]
    path = f"/spec/pools/{index}/image"
    try:
        _patch(target, name, {"op": "add", "path": path, "value": _MISSING})
        yield f"{name}/{pool}"
    finally:
        target.undo("a wrong image", lambda: _patch(target, name, {"op": "remove", "path": path}, gone_is_fine=True))


@contextmanager
def override(target: Target, pick: float) -> Iterator[str]:
    """A person sets a pool's size by hand, and takes that back."""
    cluster = chosen(target.clusters(), pick)
    name, pool = cluster["metadata"]["name"], "cpu" if pick * 1000 % 1 < 0.5 else "gpu"
    replicas = int(pick * 100) % 3
    entry = {"pool": pool, "replicas": replicas}
    try:
        _patch(target, name, {"op": "add", "path": "/spec/overrides", "value": [entry]})
        yield f"{name}/{pool}: {replicas}"
    finally:
        removal = {"op": "remove", "path": "/spec/overrides"}
        target.undo("an override", lambda: _patch(target, name, removal, gone_is_fine=True))


@contextmanager
def service_edited(target: Target, pick: float) -> Iterator[str]:
    """A cluster's Service leads nowhere until the operator has put it right, or is deleted."""
    pod = chosen(target.schedulers(), pick)
    name = f"{pod['metadata']['labels']['gpudask.dev/cluster']}-scheduler"
    if pick * 1000 % 1 < 0.5:
        target.do("delete", "configmap", "-l", f"gpudask.dev/cluster={name.removesuffix('-scheduler')}", "--wait=false")
        yield f"ConfigMaps of {name} deleted"
        return
    patch = {"spec": {"selector": {"dask.org/component": "nobody"}}}
    target.do("patch", "service", name, "--type=merge", "-p", json.dumps(patch))
    yield name


def _patch(target: Target, name: str, operation: Json, *, gone_is_fine: bool = False) -> None:
    done = target.kubectl.attempt(
        "patch", "gdc", name, "--type=json", "-p", json.dumps([operation]), "--request-timeout=15s"
    )
    gone = "NotFound" in done.stderr or "not found" in done.stderr or "nonexistant" in done.stderr
    if done.returncode and not (gone and gone_is_fine):
        if "NotFound" in done.stderr:
            raise NoVictimError(f"{name} is gone")
        raise AssertionError(done.stderr)
