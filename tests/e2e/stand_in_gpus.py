"""Variables that the local cluster's pretended GPUs need, added to pods by the API server: manifests stay as written.

A real device plugin sets variables in the containers that get a device, too. Here they are dask-cuda's own switches for
a machine without any: docs/getting-started.md has them.
"""

from __future__ import annotations

from gpudask.api import Json

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD
from tests.e2e.platform import Platform
from tests.e2e.space import Space
from tests.eventually import eventually


_RESOURCE = "nvidia.com/gpu"
_VARIABLES = {"CUDA_VISIBLE_DEVICES": "0", "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1"}  # for one GPU a pod
_API = "admissionregistration.k8s.io/v1"


@contextmanager
def stand_in_gpus(platform: Platform, space: Space) -> Iterator[None]:
    """While the context is open, GPU pods of this namespace run without a device."""
    name = f"stand-in-gpus-{space.kubectl.namespace}"
    objects = [_policy(name), _binding(name, space.kubectl.namespace)]
    platform.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    try:
        eventually(lambda: _applies(space), "the API server adds the variables to a GPU pod")
        yield
    finally:
        for kind in ("mutatingadmissionpolicybinding", "mutatingadmissionpolicy"):
            platform.kubectl("delete", kind, name, "--ignore-not-found")


def _policy(name: str) -> Json:
    variables = ", ".join(
        f'Object.spec.containers.env{{name: "{key}", value: "{value}"}}' for key, value in _VARIABLES.items()
    )
    added = f'Object{{spec: Object.spec{{containers: [Object.spec.containers{{name: "dask", env: [{variables}]}}]}}}}'
    asks = f"has(c.resources) && has(c.resources.limits) && '{_RESOURCE}' in c.resources.limits"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "asks-for-gpus", "expression": f"object.spec.containers.exists(c, {asks})"}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": added}}],
        },
    }


def _binding(name: str, namespace: str) -> Json:
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "apiVersion": _API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "matchResources": {"namespaceSelector": here}},
    }


def _applies(space: Space) -> bool:
    """A policy takes a moment to come into force, and a namespace one to get its service account."""
    container = {"name": "dask", "image": "none", "resources": {"limits": {_RESOURCE: "1"}}, **RESTRICTED_CONTAINER}
    spec = {"containers": [container], **RESTRICTED_POD}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
    done = space.kubectl.attempt("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    if done.returncode != 0:
        return False
    (made,) = json.loads(done.stdout)["spec"]["containers"]
    return {item["name"] for item in made.get("env", ())} >= set(_VARIABLES)
