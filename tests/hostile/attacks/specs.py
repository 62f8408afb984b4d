"""Specs that the API server lets in: large, deep, absurd, or at every limit at once."""

from __future__ import annotations

from gpudask.api import Json

import json
from typing import Any

from gpudask.api.resource import PLURAL
from tests.builders import a_pool
from tests.hostile.attack import MARK, Attack, Request, create, path
from tests.hostile.attacks.objects import cluster
from tests.planning.builders import gpu_pool

_FORGED = f"{MARK}\n[2026-01-01 00:00:00,000] gpudask [ERROR] forged\x1b[31m\u202e"


def _spec(name: str, slug: str, *pools: Json, **spec: Any) -> Attack:
    return Attack(name, "specs", (create(PLURAL, cluster(slug, *pools, **spec)),))


def _nested(slug: str, levels: int, within: str) -> Request:
    """`within` is the field that is nested so deep; Python's own JSON could not write it."""
    config = {"config": {"x": 0}} if within == "config" else {"template": {"spec": {"x": 0}}}
    body = json.dumps(cluster(slug, **config)).encode()
    return Request("POST", path(PLURAL), body.replace(b'"x": 0', b'"x": ' + b'{"y":' * levels + b"1" + b"}" * levels))


_LITERALS = {f"k{n}": f"[{', '.join(str(m) for m in range(400))}]" for n in range(33)}
_FULL_ENV = [{"name": f"V{n}", "value": "v" * 200} for n in range(64)]
_FULL_POOLS = [
    a_pool(
        f"p{n}",
        replicas=0,
        env=_FULL_ENV,
        extraArgs=["--x" + "y" * 100] * 32,
        offers={f"r{m}": 1 for m in range(16)},
        template={"metadata": {"labels": {f"l{m}": "x" for m in range(64)}}},
    )
    for n in range(16)
]
_FALLING = [gpu_pool(f"p{n}", fallback={"to": [f"p{(n + 1) % 8}"]}) for n in range(8)]
ATTACKS = (
    Attack("a configuration two thousand deep", "specs", (_nested("deep-config", 2_000, "config"),)),
    Attack("a configuration nine thousand deep", "specs", (_nested("deeper-config", 9_000, "config"),)),
    Attack("a template nine thousand deep", "specs", (_nested("deep-template", 9_000, "template"),)),
    _spec("a configuration of 62 kB of lists", "literals", a_pool(replicas=50), config=_LITERALS),
    _spec("a configuration of 700 kB", "large", config={f"k{n}": "(1, 2)" * 1_000 for n in range(120)}),
    _spec(
        "a configuration with keys that are none",
        "keys",
        config={_FORGED: {"": {"__proto__": _FORGED, "a.b": "\u0000"}}},
    ),
    _spec(
        "a configuration of wrong types",
        "types",
        config={"distributed": [1, None, {"x": -(2**60)}], "temporary-directory": 7},
    ),
    _spec("every field at its limit", "full", *_FULL_POOLS, env=_FULL_ENV[:32]),
    _spec(
        "a template of two thousand variables",
        "variables",
        template={
            "spec": {"containers": [{"name": "dask", "env": [{"name": f"V{n}", "value": "x"} for n in range(2_000)]}]}
        },
    ),
    _spec("thirty-two pools of five thousand GPU pods", "pools", *(gpu_pool(f"p{n}", most=5_000) for n in range(32))),
    _spec("a task on every GPU that there could be", "gpus", gpu_pool(count=64, most=5_000)),
    _spec("images that are none", "images", a_pool(image=_FORGED, replicas=9), image="../../\u0000 x" + "y" * 400),
    _spec(
        "quantities at the end of all numbers",
        "quantities",
        a_pool(resources={"cpu": "9E", "memory": "8E"}, replicas=3),
    ),
    _spec("quantities of almost nothing", "grains", a_pool(resources={"cpu": "1n", "memory": "1Mi"}, replicas=3)),
    _spec("offers without end", "offers", a_pool(offers={"X": "9E", _FORGED: "1"}, replicas=2)),
    _spec(
        "durations of two hundred years",
        "durations",
        gpu_pool(drainTimeout="2000000h"),
        idle={"deleteAfter": "2000000h", "shutdownAfterDisconnect": "2000000h"},
    ),
    _spec("a cluster that deletes itself", "brief", a_pool(replicas=1), idle={"deleteAfter": "10s"}),
    _spec("pools that fall back on each other", "falling", *_FALLING),
    _spec("arguments that forge", "arguments", a_pool(extraArgs=[_FORGED, "keeper-cpu-worker-0"], replicas=2)),
    _spec(
        "a Service with annotations of nonsense",
        "service",
        scheduler={"service": {"type": "NodePort", "annotations": {"not a key": _FORGED}}},
    ),
    _spec(
        "pull secrets with names of nonsense",
        "secrets",
        imagePullSecrets=[{"name": f"../{n}{_FORGED}"} for n in range(16)],
    ),
)
HEAVY = (
    Attack(
        "five thousand pods",
        "heavy specs",
        (create(PLURAL, cluster("absurd", a_pool(replicas=5_000))),),
        seconds=3,
        heavy=True,
    ),
)
