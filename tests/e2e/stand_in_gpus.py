"""GPU pods run without a device: on the local cluster they always do, on a given one in a test's namespace."""

from __future__ import annotations

from gpudask.api import Json

import json
from collections.abc import Iterator
from contextlib import contextmanager

from local.nodes.pretended_gpus import NO_DRIVER, RESOURCE, VISIBLE, binding, policy
from tests.e2e.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD
from tests.e2e.platform import Platform
from tests.e2e.provider import LocalProvider
from tests.e2e.space import Space
from tests.eventually import eventually


@contextmanager
def stand_in_gpus(platform: Platform, space: Space) -> Iterator[None]:
    """While the context is open, GPU pods of this namespace run without a device."""
    if isinstance(platform.provider, LocalProvider):  # it adds the variables by itself
        eventually(lambda: _applies(space), "local/nodes/pretended_gpus.py is in force: `python -m local up` has it so")
        yield
        return
    name = f"stand-in-gpus-{space.kubectl.namespace}"
    objects = [_named(policy(), name), _here(_named(binding(), name), name, space.kubectl.namespace)]
    platform.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    try:
        eventually(lambda: _applies(space), "the API server adds the variables to a GPU pod")
        yield
    finally:
        for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
            platform.kubectl("delete", kind, name, "--ignore-not-found")


def _named(manifest: Json, name: str) -> Json:
    return manifest | {"metadata": {"name": name}}


def _here(manifest: Json, name: str, namespace: str) -> Json:
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return manifest | {"spec": {"policyName": name, "matchResources": {"namespaceSelector": here}}}


def _applies(space: Space) -> bool:
    """A policy takes a moment to come into force, and a namespace one to get its service account."""
    container = {"name": "dask", "image": "none", "resources": {"limits": {RESOURCE: "1"}}, **RESTRICTED_CONTAINER}
    spec = {"containers": [container], **RESTRICTED_POD}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
    done = space.kubectl.attempt("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    if done.returncode != 0:
        return False
    (made,) = json.loads(done.stdout)["spec"]["containers"]
    return {item["name"] for item in made.get("env", ())} >= {VISIBLE, NO_DRIVER}
