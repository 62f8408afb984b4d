"""The pod of a job's runner, and the cluster that a job makes.

The runner is a pod of its cluster in all but its owner: it has the cluster's defaults, environment, configuration and
template, so that what the workers need to connect (certificates for TLS, above all) it has too. Its own template lies
over that.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gpudask.api import Json, addresses, resource
from gpudask.api.job import Job, JobSpec, job_reference
from gpudask.api.pod_template import Template
from gpudask.api.resource import Cluster, InvalidSpecError
from gpudask.desired import names, pod

_COMPONENT = "runner"
_STOCK_COMPONENT = "job-runner"  # by which programs for the stock operator find the pod of a DaskJob
_GATE = {"name": resource.GATE_RECORDED}
_DEFAULT_RESOURCES = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def job_cluster(job: Job, attempt: int) -> Json:
    """The job's own cluster, for this attempt."""
    labels = {resource.LABEL_JOB: job.name, resource.LABEL_ATTEMPT: str(attempt)}
    return {
        "apiVersion": resource.API_VERSION,
        "kind": resource.KIND,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": labels,
            "annotations": {resource.ANNOTATION_SPEC_HASH: cluster_hash(job)},
            "ownerReferences": [job_reference(job)],
        },
        "spec": job.cluster_body,
    }


def cluster_hash(job: Job) -> str:
    """The hash of the spec that the job's own cluster is made of."""
    return hashlib.sha256(json.dumps(job.cluster_body, sort_keys=True).encode()).hexdigest()[:10]


def runner_hash(job: Job) -> str:
    """The hash of what a runner is made of, but for a cluster that the job only uses."""
    template = job.spec.runner.template.model_dump(mode="json")
    made_of = json.dumps([template, job.cluster_name, job.cluster_body], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Hashes:
    """The hashes of what a job makes: its cluster's, its runner's. `spec`: the one that they are of."""

    spec: JobSpec
    cluster: str
    runner: str


def hashes(job: Job, before: Hashes | None = None) -> Hashes:
    """The hashes of what a job makes: those of `before`, of the same job, where they are of this very parsed spec.

    They take as long as the spec is large, and each pass needs them.
    """
    if before is not None and before.spec is job.spec:
        return before
    return Hashes(job.spec, cluster_hash(job), runner_hash(job))


def runner_pod(job: Job, attempt: int, cluster: Cluster) -> Json:
    """The pod of this attempt, which waits at a gate until the job's status has its uid.

    Raises:
        InvalidSpecError: the cluster's template is of no use for it; the message names the path.
        ValueError: its own template has the wrong shape; the message names the path.
    """
    template = job.spec.runner.template
    main: Json = template.spec["containers"][0]
    container: Json = {
        "image": cluster.spec.image,
        "env": [
            *pod.environment(cluster, [], []),
            {"name": "DASK_SCHEDULER_ADDRESS", "value": _address(cluster)},
        ],
    }
    is_stock = bool(job.stock_uid)
    meta = pod.metadata(cluster, names.runner_pod(job.name, attempt, is_stock=is_stock), _COMPONENT)
    meta["ownerReferences"] = [job_reference(job)]
    meta["labels"] |= {resource.LABEL_JOB: job.name, resource.LABEL_ATTEMPT: str(attempt)}
    meta["annotations"] = {resource.ANNOTATION_SPEC_HASH: runner_hash(job)}
    if is_stock:
        meta["labels"][resource.LABEL_DASK_COMPONENT] = _STOCK_COMPONENT
    rendered = _of_cluster(cluster, pod.skeleton(cluster, meta, container))
    own = rendered["spec"]["containers"][0]
    # Other containers of the cluster's template would go on when the program has ended.
    rendered["spec"]["containers"] = [own | {"name": main["name"]}]
    if not main.get("resources") and not own.get("resources"):
        rendered["spec"]["containers"][0]["resources"] = deepcopy(_DEFAULT_RESOURCES)
    whole = pod.with_templates(rendered, Template(metadata=template.metadata, spec=template.spec))
    gates = [gate for gate in _objects(whole["spec"].get("schedulingGates")) if gate.get("name") != _GATE["name"]]
    containers = sorted(_objects(whole["spec"].get("containers")), key=lambda item: item.get("name") != main["name"])
    forced = {"restartPolicy": "Never", "schedulingGates": [*gates, _GATE], "containers": containers}
    return whole | {"spec": whole["spec"] | forced}


def _of_cluster(cluster: Cluster, skeleton: Json) -> Json:
    """`skeleton` with the cluster's template over it; its main container is the only one.

    Raises:
        InvalidSpecError: the template has the wrong shape, or leaves no such container.
    """
    try:
        rendered = pod.with_templates(skeleton, cluster.spec.template)
    except ValueError as error:
        raise InvalidSpecError(f"spec.template.{error}") from error
    containers = _objects(rendered["spec"].get("containers"))
    own = [item for item in containers if item.get("name") == pod.MAIN_CONTAINER]
    if not own:
        raise InvalidSpecError(
            f"spec.template.spec.containers: the container {pod.MAIN_CONTAINER} is missing: let it stand there"
        )
    return rendered | {"spec": rendered["spec"] | {"containers": own}}


def _address(cluster: Cluster) -> str:
    return addresses.scheduler_address(cluster.name, cluster.namespace, cluster.spec.protocol)


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
