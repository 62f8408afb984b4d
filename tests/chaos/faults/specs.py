"""What people do while all goes wrong: a wrong image, another size, an edit of what is the operator's."""

from __future__ import annotations

from gpudask.api.json_object import Json

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.stage import NoVictimError, Stage, chosen

_MISSING = "localhost/gpudask/missing:1"


@contextmanager
def image_missing(stage: Stage, pick: float) -> Iterator[str]:
    """A pool gets an image that nobody has, and its own again."""
    cluster = chosen(stage.clusters(), pick)
    name, index = cluster["metadata"]["name"], 0 if pick * 1000 % 1 < 0.5 else 1
    pool = cluster["spec"]["pools"][index]["name"]
    path = f"/spec/pools/{index}/image"
    try:
        _patch(stage, name, {"op": "add", "path": path, "value": _MISSING})
        yield f"{name}/{pool}"
    finally:
        stage.undo("a wrong image", lambda: _patch(stage, name, {"op": "remove", "path": path}, gone_is_fine=True))


@contextmanager
def override(stage: Stage, pick: float) -> Iterator[str]:
    """A person sets a pool's size by hand, and takes that back."""
    cluster = chosen(stage.clusters(), pick)
    name, pool = cluster["metadata"]["name"], "cpu" if pick * 1000 % 1 < 0.5 else "gpu"
    replicas = int(pick * 100) % 3
    entry = {"pool": pool, "replicas": replicas}
    try:
        _patch(stage, name, {"op": "add", "path": "/spec/overrides", "value": [entry]})
        yield f"{name}/{pool}: {replicas}"
    finally:
        removal = {"op": "remove", "path": "/spec/overrides"}
        stage.undo("an override", lambda: _patch(stage, name, removal, gone_is_fine=True))


@contextmanager
def service_edited(stage: Stage, pick: float) -> Iterator[str]:
    """A cluster's Service leads nowhere until the operator has put it right, or is deleted."""
    pod = chosen(stage.schedulers(), pick)
    name = f"{pod['metadata']['labels']['gpudask.dev/cluster']}-scheduler"
    if pick * 1000 % 1 < 0.5:
        stage.do("delete", "configmap", "-l", f"gpudask.dev/cluster={name.removesuffix('-scheduler')}", "--wait=false")
        yield f"ConfigMaps of {name} deleted"
        return
    patch = {"spec": {"selector": {"dask.org/component": "nobody"}}}
    stage.do("patch", "service", name, "--type=merge", "-p", json.dumps(patch))
    yield name


def _patch(stage: Stage, name: str, operation: Json, *, gone_is_fine: bool = False) -> None:
    done = stage.kubectl.attempt(
        "patch", "gdc", name, "--type=json", "-p", json.dumps([operation]), "--request-timeout=15s"
    )
    gone = "NotFound" in done.stderr or "not found" in done.stderr or "nonexistant" in done.stderr
    if done.returncode and not (gone and gone_is_fine):
        if "NotFound" in done.stderr:
            raise NoVictimError(f"{name} is gone")
        raise AssertionError(done.stderr)
