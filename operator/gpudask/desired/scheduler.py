"""The scheduler: its pod, the Services by which it is found, and the ConfigMap that its preload reads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from gpudask.api import Json, addresses, resource
from gpudask.api.addresses import COMM_PORT, DASHBOARD_PORT, UCXX_PORT
from gpudask.api.pod_template import without_reserved
from gpudask.api.resource import LABEL_DASK_COMPONENT, LABEL_SCHEDULER, LABEL_SERVES, Cluster
from gpudask.api.spec import Protocol, Spec
from gpudask.desired import disruption, names, pod, spec_hash

_MOUNT = "/etc/gpudask"
_PRELOAD = f"{_MOUNT}/preload"
_TOKEN = f"{_MOUNT}/token"
TOKEN_DIGEST_KEY = "sha256"  # noqa: S105 - the key's name
POOLS_KEY = "pools.json"
ENTRY = "gpudask_entry.py"
PRELOAD_VOLUME = "gpudask-preload"


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The versions in a scheduler pod that its workers have to agree with; kept in an annotation on the pod.

    `image`: the cluster's; `scheduler_image`: the pod's own, the same where the spec names no other; `is_default`:
    whether `image` was the operator's default of the time, which the cluster keeps as long as the pod lives.
    """

    image: str
    scheduler_image: str
    protocol: Protocol
    is_default: bool = False

    @classmethod
    def of(cls, spec: Spec, *, is_default: bool = False) -> MadeWith:
        """Those of a scheduler pod of `spec`, which has an image."""
        image = spec.image or ""
        return cls(image, spec.scheduler.image or image, spec.protocol, is_default)

    def dump(self) -> str:
        """The annotation's text."""
        said = {"image": self.image, "schedulerImage": self.scheduler_image, "protocol": self.protocol}
        return json.dumps(said | ({"isDefault": True} if self.is_default else {}))


def scheduler_pod(cluster: Cluster, name: str, preload: str) -> Json:
    """The scheduler pod `name`, with the files of the ConfigMap `preload` mounted."""
    section = cluster.spec.scheduler
    meta = pod.metadata(cluster, name, "scheduler")
    meta["labels"] |= {resource.LABEL_SCHEDULER: name, resource.LABEL_SERVES: cluster.uid}
    meta["annotations"] = {
        resource.ANNOTATION_SPEC_HASH: spec_hash.of_scheduler(cluster.spec),
        resource.ANNOTATION_MADE_WITH: MadeWith.of(cluster.spec, is_default=cluster.image_is_default).dump(),
        **disruption.eviction_protection(cluster.spec, None, is_protected=True),
    }
    arguments = _arguments(cluster)
    container = {
        "image": section.image or cluster.spec.image,
        "args": arguments,
        "env": pod.environment(cluster, _environment(), section.env),
        "resources": pod.resources(section.resources),
        "ports": [
            {"name": "tcp-comm", "containerPort": COMM_PORT},
            {"name": "http-dashboard", "containerPort": DASHBOARD_PORT},
        ],
        "startupProbe": _probe(period=1, failures=600),
        "readinessProbe": _probe(period=10, failures=3),
        "volumeMounts": [
            {"name": PRELOAD_VOLUME, "mountPath": _PRELOAD, "readOnly": True},
            {"name": "gpudask-token", "mountPath": _TOKEN, "readOnly": True},
        ],
    }
    rendered = pod.skeleton(cluster, meta, container)
    rendered["spec"]["affinity"] = pod.away_from_gpus()
    rendered["spec"]["volumes"] = [
        {"name": PRELOAD_VOLUME, "configMap": {"name": preload}},
        {"name": "gpudask-token", "configMap": {"name": names.token(cluster.name)}},
    ]
    whole = pod.with_templates(rendered, cluster.spec.template, section.template)
    preloaded = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": json.dumps([f"{_PRELOAD}/{ENTRY}"])}
    return disruption.with_shutdown_delay(pod.with_variables(whole, arguments, preloaded))


def _arguments(cluster: Cluster) -> list[str]:
    spec = cluster.spec
    arguments = ["dask", "scheduler", "--port", str(COMM_PORT)]
    arguments += ["--dashboard-address", f":{DASHBOARD_PORT}", "--preload", f"{_PRELOAD}/{ENTRY}"]
    if spec.protocol != "tcp":
        arguments += ["--protocol", spec.protocol]
    return [*arguments, *spec.scheduler.extra_args]


def _environment() -> list[Json]:
    return [
        {"name": "GPUDASK_TOKEN_SHA256_FILE", "value": f"{_TOKEN}/{TOKEN_DIGEST_KEY}"},
        {"name": "GPUDASK_POOLS_FILE", "value": f"{_TOKEN}/{POOLS_KEY}"},
    ]


def _probe(*, period: int, failures: int) -> Json:
    """A probe with a long timeout, for readiness alone: a large graph blocks the scheduler's loop for seconds."""
    return {
        "httpGet": {"path": "/health", "port": "http-dashboard"},
        "periodSeconds": period,
        "timeoutSeconds": 30,
        "failureThreshold": failures,
    }


def services(cluster: Cluster, scheduler: str = "") -> list[Json]:
    """The Services by which workers and clients find the scheduler pod: one, and a headless one where needed.

    They publish addresses that are not ready: workers connect as soon as the scheduler listens, without
    waiting for a probe. Because Kubernetes then publishes ending pods too, the operator takes its label off a pod that
    ends: a predecessor on a lost node would get half of the connections. The selectors stay the same for all of a
    cluster's life: the stock client's port-forward reads one once, and finds the successor by it.

    Args:
        cluster: whose they are. A cluster deleted and applied again under its name has another uid, and other Services.
        scheduler: the one pod that they name instead, made by a version that did not put the label on; empty: none.
    """
    chosen = {LABEL_SCHEDULER: scheduler} if scheduler else {LABEL_SERVES: cluster.uid}
    exposed = cluster.spec.scheduler.service
    annotations = without_reserved(exposed.annotations)
    annotated = {"annotations": annotations} if annotations else {}
    made = [_service(cluster, addresses.service(cluster.name), chosen, {"type": exposed.type}, annotated)]
    if any(addresses.needs_headless(cluster.spec.protocol_of(pool)) for pool in cluster.spec.pools):
        headless = _service(cluster, addresses.headless_service(cluster.name), chosen, {"clusterIP": "None"})
        if any(cluster.spec.own_protocol(pool) for pool in cluster.spec.pools):
            headless["spec"]["ports"].append(_ucxx_port())
        made.append(headless)
    return made


def _ucxx_port() -> Json:
    """The port at which the preload listens; a number, since the pod's container does not name it."""
    return {"name": "ucxx-comm", "port": UCXX_PORT, "targetPort": UCXX_PORT, "protocol": "TCP"}


def _service(cluster: Cluster, name: str, chosen: Json, kind: Json, more_metadata: Json | None = None) -> Json:
    ports = [("tcp-comm", COMM_PORT), ("http-dashboard", DASHBOARD_PORT)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pod.metadata(cluster, name, "scheduler") | (more_metadata or {}),
        "spec": {
            **kind,
            "publishNotReadyAddresses": True,
            "selector": {LABEL_DASK_COMPONENT: "scheduler", **chosen},
            "ports": [{"name": n, "port": p, "targetPort": n, "protocol": "TCP"} for n, p in ports],
        },
    }


def preload_pools(cluster: Cluster) -> dict[str, Json]:
    """The pools for the preload: which accept plain tasks, and have GPUs, and offer and dial what.

    The schema is docs/preload-protocol.md.
    """
    spec = cluster.spec
    return {
        pool.name: {"accepts": spec.accepts(pool), "gpu": pool.gpu is not None}
        | ({"offers": pool.offered_resources} if pool.gpu is not None else {})
        | ({"listen": {own: UCXX_PORT}} if (own := spec.own_protocol(pool)) else {})
        for pool in spec.pools
    }


def preload_settings(cluster: Cluster, token: str) -> Json:
    """The ConfigMap with the settings of this cluster's preload: its pools, and its token's SHA-256, no secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pod.metadata(cluster, names.token(cluster.name), "scheduler"),
        "data": {
            TOKEN_DIGEST_KEY: hashlib.sha256(token.encode()).hexdigest(),
            POOLS_KEY: json.dumps(preload_pools(cluster), sort_keys=True),
        },
    }
