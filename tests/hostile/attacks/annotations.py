"""Annotations of ours with nonsense in them: on pods that say that they are a cluster's, and on clusters."""

from __future__ import annotations

import json

from gpudask.api.resource import ANNOTATION_DASK_NAME, ANNOTATION_GPUS, ANNOTATION_RETIRE, ANNOTATION_SPEC_HASH, PLURAL
from tests.hostile.attack import MARK, OWN, Attack, Expected, create, merge
from tests.hostile.attacks.objects import cluster, pod, worker

_CONTROL = f"{MARK}\n[2026-01-01 00:00:00,000] gpudask [ERROR] forged\r\x1b[31m\u202e\u0000".replace("\u0000", "")
_RETIREMENT = {"why": MARK, "ifIdle": False, "release": False, "at": 1.0}


def _on_pods(name: str, annotations: dict[str, str]) -> Attack:
    """On a pod that nobody owns, and on one that the attackers' cluster owns; then once more, changed."""
    slug = "".join(c if c.isalnum() else "-" for c in name.lower())[:40]
    free, owned = f"a-{slug}", f"own-{slug}"
    requests = (
        create("pods", pod(free, annotations=annotations)),
        create("pods", worker(owned, annotations=annotations)),
        merge("pods", free, {"metadata": {"annotations": annotations | {"again": "1"}}}),
    )
    return Attack(name, "annotations", requests)


def _retire(name: str, text: str) -> Attack:
    return _on_pods(name, {ANNOTATION_RETIRE: text})


_HOLDS = {f"gpudask.dev/holds-{pool}": text * 100 for pool in ("cpu", "gpu", "x") for text in ("9" * 400,)}
_NONSENSE = {
    "gpudask.dev/holds-gpu": json.dumps([{"client": _CONTROL, "until": "9" * 400, "pods": 1e308}] * 200),
    "gpudask.dev/holds-cpu": "[" * 20_000,
    "gpudask.dev/mirrored": "{" * 5_000,
    "gpudask.dev/gpus": "NaN",
}
_OVERRIDES = [{"pool": "cpu", "replicas": 0, "by": _CONTROL[:100], "until": "9999-12-31T23:59:59Z"}]
_LONG_AGO = [{"pool": "gpu", "min": 0, "max": 5_000, "by": MARK, "until": "0001-01-01T00:00:00Z"}]
ATTACKS = (
    _on_pods("five thousand digits of GPUs", {ANNOTATION_GPUS: "9" * 5_000}),
    _on_pods("GPUs in other digits", {ANNOTATION_GPUS: "\u0661\u00b2"}),
    _on_pods("fewer GPUs than none", {ANNOTATION_GPUS: "-9999"}),
    _on_pods("as many GPUs as there may be", {ANNOTATION_GPUS: "9999"}),
    _retire("a retirement five thousand deep", "[" * 5_000),
    _retire("a retirement that is two thousand deep and whole", "[" * 2_000 + "]" * 2_000),
    _retire("a retirement in four hundred digits", json.dumps(_RETIREMENT | {"at": 10**400})),
    _retire("a retirement at no number", json.dumps(_RETIREMENT | {"at": float("nan")})),
    _retire("a retirement at infinity", json.dumps(_RETIREMENT | {"at": float("-inf")})),
    _retire("a retirement long after the end of time", json.dumps(_RETIREMENT | {"at": 1e300})),
    _retire("a retirement of wrong types", json.dumps({"why": {}, "ifIdle": [], "release": None, "at": "x"})),
    _retire("a retirement that is a text", json.dumps(MARK)),
    _retire("a retirement of 250 kB", json.dumps(_RETIREMENT | {"why": MARK * 15_000})),
    _retire("a retirement with control characters", json.dumps(_RETIREMENT | {"why": _CONTROL})),
    _retire("a retirement with half a surrogate pair", '{"why": "\\ud800", "ifIdle": 0, "release": 0, "at": 1}'),
    _on_pods("a Dask name of 250 kB", {ANNOTATION_DASK_NAME: "<" * 250_000}),
    _on_pods("a Dask name with control characters", {ANNOTATION_DASK_NAME: _CONTROL, ANNOTATION_SPEC_HASH: _CONTROL}),
    _on_pods("the victim's Dask names", {ANNOTATION_DASK_NAME: "keeper-gpu-worker-0", ANNOTATION_SPEC_HASH: ""}),
    Attack(
        "holds of nonsense on a cluster", "annotations", (merge(PLURAL, OWN, {"metadata": {"annotations": _HOLDS}}),)
    ),
    Attack(
        "annotations of nonsense on a cluster",
        "annotations",
        (create(PLURAL, cluster("nonsense", metadata={"annotations": _NONSENSE})),),
    ),
    Attack(
        "annotations of 256 kB on a cluster",
        "annotations",
        (create(PLURAL, cluster("padded", metadata={"annotations": {f"x{n}": "y" * 10_000 for n in range(25)}})),),
    ),
    Attack(
        "overrides for ever, and from before all time",
        "annotations",
        (
            create(PLURAL, cluster("for-ever", overrides=_OVERRIDES)),
            create(PLURAL, cluster("long-ago", overrides=_LONG_AGO)),
        ),
    ),
    Attack(
        "a hold on a cluster of others",
        "annotations",
        (merge(PLURAL, "keeper", {"metadata": {"annotations": _HOLDS}}, namespace="@VICTIM@"),),
        expected=Expected.REFUSED,
    ),
)
