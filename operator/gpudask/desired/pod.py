"""The parts that all pods of a cluster have: labels, owner, safe defaults, environment; templates over them."""

from __future__ import annotations

import ast
import re
from typing import Any

from gpudask.api import Json, resource
from gpudask.api.pod_template import EnvVar, ResourceList, Template, without_reserved
from gpudask.api.resource import Cluster
from gpudask.desired.strategic_merge import merge_pod

MAIN_CONTAINER = "dask"
# The node label that GPU feature discovery sets; pods without GPUs prefer other nodes.
_GPU_NODE_LABEL = "nvidia.com/gpu.present"
# Of Dask's configuration. Other keys (`GPU`, `distributed.worker`) would not survive as a variable's name: they travel
# inside a value.
_PLAIN_KEY = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
# Longer strings are not looked into, which may take seconds: quoted, Dask reads them as what they are in any case.
_LONGEST_LOOKED_INTO = 1000  # characters
# Strings that Dask reads as None, False and True.
_CONSTANTS = ("none", "null", "false", "true")


def labels(cluster: Cluster, component: str) -> dict[str, str]:
    """Labels of any object of a cluster."""
    return {
        resource.LABEL_CLUSTER: cluster.name,
        resource.LABEL_DASK_CLUSTER: cluster.name,
        resource.LABEL_DASK_COMPONENT: component,
        "app.kubernetes.io/name": "dask",
        "app.kubernetes.io/instance": cluster.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "gpudask",
    }


def metadata(cluster: Cluster, name: str, component: str) -> Json:
    """Metadata of any object of a cluster."""
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": labels(cluster, component),
        "ownerReferences": [cluster.reference],
    }


def skeleton(cluster: Cluster, meta: Json, container: Json) -> Json:
    """A pod around the main container, safe by default: it passes the restricted pod-security level."""
    spec = cluster.spec
    pod_spec: Json = {
        "restartPolicy": "Always",  # a worker that lost its scheduler exits 0 and must come back
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # Else Dask is process 1, which does not hear SIGTERM while it starts, and would be waited for until SIGKILL.
        "shareProcessNamespace": True,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": MAIN_CONTAINER,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                **container,
            }
        ],
    }
    if spec.image_pull_policy:
        pod_spec["containers"][0]["imagePullPolicy"] = spec.image_pull_policy
    if spec.image_pull_secrets:
        pod_spec["imagePullSecrets"] = [{"name": secret.name} for secret in spec.image_pull_secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec}


def environment(cluster: Cluster, own: list[Json], env: list[EnvVar]) -> list[Json]:
    """Environment variables: ours, Dask's configuration, the cluster's, the pod's own; later ones win."""
    by_name = {item["name"]: item for item in [*own, *dask_environment(cluster.spec.config)]}
    for variable in [*cluster.spec.env, *env]:
        by_name[variable.name] = variable.model_dump(by_alias=True, exclude_none=True)
    return list(by_name.values())


def resources(requested: ResourceList) -> Json:
    """Resource requests as written; memory is a limit too, because Dask is told it and Kubernetes should agree."""
    requests = {name: str(quantity) for name, quantity in requested.items()}
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"}
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def away_from_gpus() -> Json:
    """An affinity that keeps pods without GPUs off GPU nodes where there is a choice."""
    expression = {"key": _GPU_NODE_LABEL, "operator": "DoesNotExist"}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def near_gpu_pods() -> Json:
    """An affinity that fills a node with GPU pods before the next one is begun: one that is empty can be given back.

    Without it Kubernetes spreads them, and each keeps a node of several GPUs.
    """
    selector = {"matchExpressions": [{"key": resource.LABEL_GPU, "operator": "Exists"}]}
    term = {"labelSelector": selector, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def with_templates(pod: Json, *templates: Template) -> Json:
    """`pod` with the templates merged over it; labels and owner that the operator relies on stay ours.

    Also those that this pod does not have: a scheduler with the label of a pool would be no scheduler.
    """
    ours = pod["metadata"]
    for template in templates:
        pod = merge_pod(pod, _partial(template))
    merged = pod["metadata"]
    return pod | {
        "metadata": merged
        | {key: ours[key] for key in ("name", "namespace", "ownerReferences")}
        | {key: {**merged.get(key, {}), **ours.get(key, {})} for key in ("labels", "annotations")}
    }


def with_variables(pod: Json, arguments: list[str], variables: dict[str, str]) -> Json:
    """`pod`, which gets as variables what a template's own arguments, in place of our `arguments`, do not tell it."""
    for container in pod["spec"].get("containers") or ():
        if container["name"] == MAIN_CONTAINER and container.get("args") != arguments:
            env = container.get("env") or []
            known = {item.get("name") for item in env}
            more = [{"name": name, "value": value} for name, value in variables.items() if name not in known]
            container["env"] = [*env, *more]
    return pod


def _partial(template: Template) -> Json:
    written: Json = template.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "metadata" in written:
        written["metadata"] = {part: without_reserved(keys) for part, keys in written["metadata"].items()}
    return written


def dask_environment(config: dict[str, Any]) -> list[dict[str, str]]:
    """Dask's configuration as environment variables, sorted by name: the way that needs nothing in the image.

    `{"distributed": {"worker": {"x": 1}}}` is `DASK_DISTRIBUTED__WORKER__X=1`.
    https://docs.dask.org/en/stable/configuration.html#environment-variables
    Dask reads the values as Python literals where they are such; strings that look like one are quoted.
    """
    flat = _flatten("DASK", config)
    return [{"name": name, "value": _literal(flat[name])} for name in sorted(flat)]


def _flatten(prefix: str, node: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{'_' if prefix == 'DASK' else '__'}{key.upper().replace('-', '_').replace('.', '__')}"
        deeper = isinstance(value, dict) and value and all(_PLAIN_KEY.fullmatch(inner) for inner in value)
        flat.update(_flatten(name, value) if deeper else {name: value})
    return flat


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    if len(value) > _LONGEST_LOOKED_INTO or value.lower() in _CONSTANTS:
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    except (TypeError, MemoryError, RecursionError):
        return repr(value)  # Dask would stumble over it, too
    return repr(value)
