"""The scheduler pod."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from gpudask.api import resource
from gpudask.api.resource import Cluster
from gpudask.api.spec import Protocol, Spec
from gpudask.api.stock import COMM_PORT, DASHBOARD_PORT
from gpudask.desired import names, pod, spec_hash, termination
from gpudask.desired.markers import markers

Json = dict[str, Any]

_MOUNT = "/etc/gpudask"
_PRELOAD = f"{_MOUNT}/preload"
_TOKEN = f"{_MOUNT}/token"
TOKEN_DIGEST_KEY = "sha256"  # noqa: S105 - the key's name
POOLS_KEY = "pools.json"
ENTRY = "gpudask_entry.py"
PRELOAD_VOLUME = "gpudask-preload"


@dataclass(frozen=True, slots=True)
class MadeWith:
    """What a scheduler pod was made with that its workers have to agree with; kept in an annotation on the pod.

    `image`: the cluster's; `scheduler_image`: the pod's own, the same where the spec names no other.
    """

    image: str
    scheduler_image: str
    protocol: Protocol

    @classmethod
    def of(cls, spec: Spec) -> MadeWith:
        """What a scheduler pod of `spec` is made with."""
        return cls(spec.image, spec.scheduler.image or spec.image, spec.protocol)

    def dump(self) -> str:
        """The annotation's text."""
        return json.dumps({"image": self.image, "schedulerImage": self.scheduler_image, "protocol": self.protocol})


def scheduler_pod(cluster: Cluster, name: str, preload: str) -> Json:
    """The scheduler pod `name`, with the files of the ConfigMap `preload` mounted."""
    section = cluster.spec.scheduler
    meta = pod.metadata(cluster, name, "scheduler")
    meta["labels"] |= {resource.LABEL_SCHEDULER: name, resource.LABEL_SERVES: cluster.uid}
    meta["annotations"] = {
        resource.ANNOTATION_SPEC_HASH: spec_hash.of_scheduler(cluster.spec),
        resource.ANNOTATION_MADE_WITH: MadeWith.of(cluster.spec).dump(),
        **markers(cluster.spec, None, guarded=True),
    }
    container = {
        "image": section.image or cluster.spec.image,
        "args": _arguments(cluster),
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
    return termination.lingering(pod.overlaid(rendered, cluster.spec.template, section.template))


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
    """Of readiness alone, and patient: a large graph blocks the scheduler's loop for seconds."""
    return {
        "httpGet": {"path": "/health", "port": "http-dashboard"},
        "periodSeconds": period,
        "timeoutSeconds": 30,
        "failureThreshold": failures,
    }
