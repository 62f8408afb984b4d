"""Specs and objects that the API server refuses at apply: by the definition's rules, or by its own limits."""

from __future__ import annotations

import json

from gpudask.api.resource import LABEL_POOL, PLURAL
from tests.builders import a_pool
from tests.hostile.attack import MARK, Attack, Expected, Request, create, path
from tests.hostile.attacks.objects import cluster, owner, pod
from tests.planning.builders import gpu_pool


def _refused(name: str, *requests: Request) -> Attack:
    return Attack(name, "refusals", requests, expected=Expected.REFUSED)


def _spec(name: str, *pools: dict[str, object], **spec: object) -> Attack:
    return _refused(name, create(PLURAL, cluster("refused", *pools, **spec)))


def _raw(body: bytes) -> Request:
    return Request("POST", path(PLURAL), body)


def _nested(levels: int) -> bytes:
    """A cluster whose `spec.config` is nested so deep; Python's own JSON could not write it."""
    body = json.dumps(cluster("refused", config={"x": 0})).encode()
    return body.replace(b'"x": 0', b'"x": ' + b"[" * levels + b"]" * levels)


_LABELS = {"metadata": {"labels": {LABEL_POOL: "zz"}}}
_RETIRE = {"metadata": {"annotations": {"gpudask.dev/retire": "x"}}}
ATTACKS = (
    _spec("the operator's label in the scheduler's template", scheduler={"template": _LABELS}),
    _spec("the operator's label in the template of all pods", template=_LABELS),
    _spec("the operator's annotation in a pool's template", a_pool(template=_RETIRE)),
    _spec("Dask's label in a template", template={"metadata": {"labels": {"dask.org/component": "scheduler"}}}),
    _spec("a label that is too long", template={"metadata": {"labels": {"a": "b" * 64}}}),
    _spec("the operator's annotation on the Service", scheduler={"service": {"annotations": {"gpudask.dev/x": ""}}}),
    _spec("the preload's variables in env", env=[{"name": "GPUDASK_TOKEN", "value": MARK}]),
    _spec("other ports for the scheduler", scheduler={"extraArgs": ["--port=1", "--dashboard-address=:2"]}),
    _spec("thirty-three pools", *(a_pool(f"p{n}") for n in range(33))),
    _spec("a thousand variables", env=[{"name": f"V{n}", "value": ""} for n in range(1_000)]),
    _spec("more pods than a pool may have", a_pool(replicas=5_001), gpu_pool(most=10**9)),
    _spec("numbers beyond 64 bits", a_pool(replicas=10**30)),
    _spec("durations of a thousand years", gpu_pool(drainTimeout="8760000h"), idle={"deleteAfter": "8760000h"}),
    _spec("a lease of a thousand years", idle={"shutdownAfterDisconnect": "8760000h"}),
    _spec("a worker by another name", a_pool(extraArgs=["--name", "keeper-cpu-worker-0"])),
    _spec("less memory than a page", a_pool(resources={"memory": "1"})),
    _spec("fewer pods than none", a_pool(replicas=-1)),
    _spec("a pool that is called as the scheduler", a_pool("scheduler")),
    _spec("an argument of a megabyte", a_pool(extraArgs=[MARK * 60_000])),
    _refused("names that are no names", *(create(PLURAL, cluster(n)) for n in ("a.b", "a" * 36, "-", "0a", "A"))),
    _refused("wrong types everywhere", create(PLURAL, cluster("refused") | {"spec": {"pools": {"a": [1, None]}}})),
    _refused("an object of four megabytes", create(PLURAL, cluster("refused", config={"x": "y" * 4_000_000}))),
    _refused(
        "annotations of 300 kB", create(PLURAL, cluster("refused", metadata={"annotations": {"x": MARK * 20_000}}))
    ),
    _refused("a spec without end", _raw(_nested(50_000))),
    _refused("half a JSON, and none", _raw(b'{"spec": '), _raw(b"\x00\xff" * 1_000), _raw(b"[]")),
    _refused(
        "a pod with two controllers",
        create("pods", pod("refused", ownerReferences=[owner("@OWN_UID@"), owner("@VICTIM_UID@")])),
    ),
)
