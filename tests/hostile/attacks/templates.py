"""Templates that would make other pods of the operator's than it means to."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

from gpudask.api.resource import PLURAL
from tests.builders import a_pool
from tests.hostile.attack import MARK, Attack, create
from tests.hostile.attacks.objects import cluster


def _template(name: str, slug: str, spec: Any, *, replicas: int = 2, **metadata: Any) -> Attack:
    """For every pod of a cluster, the scheduler's too."""
    template = {"spec": spec, "metadata": metadata}
    body = cluster(slug, a_pool(replicas=replicas), template=template)
    return Attack(name, "templates", (create(PLURAL, body),))


def _container(**fields: Any) -> Json:
    return {"containers": [{"name": "dask", **fields}]}


_TOLERATIONS = [{"key": f"k{n}", "operator": "Exists"} for n in range(1_000)]
_VOLUMES = [{"name": f"v{n}", "emptyDir": {}} for n in range(800)]
ATTACKS = (
    _template("the node's own network and processes", "host", {"hostNetwork": True, "hostPID": True, "hostIPC": True}),
    _template("a privileged container", "privileged", _container(securityContext={"privileged": True})),
    _template("no container at all", "none", {"containers": [{"name": "dask", "$patch": "delete"}]}),
    _template("containers that are a text", "text", {"containers": MARK}),
    _template("containers that are numbers", "numbers", {"containers": [1, None, [2]]}),
    _template("containers without names", "nameless", {"containers": [{"image": "x"}]}),
    _template("two containers of one name", "twins", {"containers": [{"name": "dask"}, {"name": "dask"}]}),
    _template(
        "directives of nonsense", "directives", {"$patch": "x", "$setElementOrder/containers": 7, "$retainKeys": {}}
    ),
    _template("a container of another name", "renamed", {"containers": [{"name": "mallory-was-here", "image": "i"}]}),
    _template("other commands", "commands", _container(command=["sleep", "1"], args=[MARK])),
    _template("arguments that are no list", "arguments", _container(args={"a": 1}, lifecycle="x", env="y")),
    _template("pods that end after a second", "brief", {"activeDeadlineSeconds": 1, "restartPolicy": "Never"}),
    _template("grace without end", "graceful", {"terminationGracePeriodSeconds": 10**9}),
    _template("grace in words", "wordy", {"terminationGracePeriodSeconds": "long"}),
    _template("a node that is not there", "nowhere", {"nodeName": "not-a-node", "schedulerName": "nobody"}),
    _template("a thousand tolerations", "tolerant", {"tolerations": _TOLERATIONS}),
    _template("eight hundred volumes", "volumes", {"volumes": _VOLUMES}),
    _template("ports that are taken", "ports", _container(ports=[{"name": "tcp-comm", "containerPort": 8786}] * 3)),
    _template("labels that are none", "labels", {}, labels={"not a label!": "x y", "a": "-"}),
    _template("annotations of 100 kB", "annotated", {}, annotations={f"x{n}": "y" * 10_000 for n in range(10)}),
    _template("fields that Kubernetes does not know", "unknown", {"x": {"y": [MARK]}, "hostUsers": "maybe"}),
    _template("another account", "account", {"serviceAccountName": "nobody", "automountServiceAccountToken": True}),
)
