"""Variables that pretended GPUs need, added to pods by the API server: manifests run as they are written.

A real device plugin sets variables in the containers that get a device, too. Here they are dask-cuda's own switches for
a machine without any. Pods that name one of them keep theirs.
"""

from __future__ import annotations

import json
from typing import Any

from local.control_plane.kube_api import KubeApi

Manifest = dict[str, Any]
RESOURCE = "nvidia.com/gpu"
VISIBLE, NO_DRIVER = "CUDA_VISIBLE_DEVICES", "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC"
MOST_GPUS = 16  # a pod's, at most
_NAME = "gpudask-local-pretended-gpus"
_GROUP = "admissionregistration.k8s.io/v1"
_LIMIT = f"c.resources.limits['{RESOURCE}']"
_ASKS = f"has(c.resources) && has(c.resources.limits) && '{RESOURCE}' in c.resources.limits"
_NAMES_ITS_OWN = f"has(c.env) && c.env.exists(e, e.name in ['{VISIBLE}', '{NO_DRIVER}'])"
_TAKES = f"{_ASKS} && !({_NAMES_ITS_OWN})"


def apply_pretended_gpus(api: KubeApi) -> None:
    """Have each pod of the cluster that asks for GPUs told how many it got.

    Raises:
        LocalClusterError: the API server does not answer, or refuses.
    """
    for plural, manifest in (("mutatingadmissionpolicies", policy()), ("mutatingadmissionpolicybindings", binding())):
        api.apply(f"/apis/{_GROUP}/{plural}/{_NAME}", manifest)


def policy() -> Manifest:
    """The policy: the variables for each container that asks for GPUs and names neither of them."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": _GROUP,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": _NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "matchConditions": [{"name": "asks-for-gpus", "expression": f"object.spec.containers.exists(c, {_TAKES})"}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": _mutation()}}],
        },
    }


def binding() -> Manifest:
    """The binding: in all namespaces."""
    return {
        "apiVersion": _GROUP,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME},
    }


def _mutation() -> str:
    """dask-cuda starts one worker for each index, and asks no driver about them."""
    indices = json.dumps([",".join(map(str, range(count))) for count in range(MOST_GPUS + 1)]).replace('"', "'")
    count = f"quantity({_LIMIT}).asInteger()"
    visible = f"{indices}[{count} > {MOST_GPUS} ? {MOST_GPUS} : {count}]"
    variables = ", ".join(
        f"Object.spec.containers.env{{name: '{name}', value: {value}}}"
        for name, value in ((VISIBLE, visible), (NO_DRIVER, "'1'"))
    )
    container = f"Object.spec.containers{{name: c.name, env: [{variables}]}}"
    return f"Object{{spec: Object.spec{{containers: object.spec.containers.filter(c, {_TAKES}).map(c, {container})}}}}"
