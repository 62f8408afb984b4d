"""Checks of the stock Dask operator, and of our mirror, which bears the names of its kinds. Pure.

Whose the kinds are is told by a category that our chart gives them, as the chart and the operator tell it.
"""

from __future__ import annotations

from gpudask.api.json_object import Json
from gpudask.cli.doctor.facts import Facts, Finding, Level, labels, mirrors, place
from gpudask.mirror.objects import GROUP, KINDS

_STOCK, _MIRROR = "stock Dask operator", "mirror"
_NAME = "dask-kubernetes-operator"
_PLURALS = {kind: f"{kind.lower()}s.{GROUP}" for kind in (*KINDS, "DaskJob")}


def operator(facts: Facts) -> list[Finding]:
    """Whether the stock operator runs. It may, beside ours, where ours mirrors nothing."""
    if facts.dask_kinds is not None and not facts.foreign_kinds and not _running(facts):
        return [Finding(_STOCK, Level.OK, "it is not installed")]
    if facts.deployments is None:
        return [facts.unread(_STOCK, "deployments")]
    if stock := _running(facts):
        where = ", ".join(place(item) for item in stock)
        return [Finding(_STOCK, Level.OK, f"it runs beside this one, with kinds of its own: {where}")]
    if facts.dask_kinds is None:
        return [facts.unread(_STOCK, "dask_kinds")]
    return [Finding(_STOCK, Level.OK, "it does not run; its resource definitions are still installed")]


def mirror(facts: Facts) -> list[Finding]:
    """Whether the mirror for the stock Dask client can work, where it is switched on."""
    on = [item for item in facts.running if mirrors(item)]
    if not on:
        return _of_one_that_is_off(facts)
    if facts.dask_kinds is None:
        return [facts.unread(_MIRROR, "dask_kinds")]
    off = f"helm upgrade {_release(on[0])} --reuse-values --set mirror.enabled=false"
    if stock := _running(facts):
        where = ", ".join(place(item) for item in stock)
        text = f"it is on, but the stock Dask operator runs too ({where}), and both write {GROUP}"
        return [Finding(_MIRROR, Level.PROBLEM, text, f"{off}, or remove the stock operator")]
    if missing := [kind for kind in KINDS if kind not in facts.dask_kinds]:
        mend = "kubectl apply --server-side -f crds/mirror.yaml"
        return [Finding(_MIRROR, Level.PROBLEM, f"it is on, but {', '.join(missing)} of {GROUP} are missing", mend)]
    if foreign := facts.foreign_kinds:
        text = f"it is on, but {', '.join(foreign)} of {GROUP} are the stock Dask operator's"
        listed = " ".join(_PLURALS.get(kind, f"{kind.lower()}s.{GROUP}") for kind in foreign)
        mend = f"kubectl delete crd {listed} (which deletes all that is of them), or {off}"
        return [Finding(_MIRROR, Level.PROBLEM, text, mend)]
    return [Finding(_MIRROR, Level.OK, "on: the stock Dask client sees each cluster")]


def _of_one_that_is_off(facts: Facts) -> list[Finding]:
    ours = [kind for kind in facts.dask_kinds or {} if kind not in facts.foreign_kinds]
    if ours and _running(facts):
        listed = ", ".join(sorted(ours))
        text = f"off, but {listed} of {GROUP} are still our chart's, and the stock operator runs on them"
        mend = "install its own definitions: helm upgrade of the stock chart, or kubectl apply -f its crds"
        return [Finding(_MIRROR, Level.WARNING, text, mend)]
    if ours:
        text = "off; the definitions that our chart once installed for it are kept, and do no harm"
        return [Finding(_MIRROR, Level.OK, text)]
    return []


def _running(facts: Facts) -> list[Json]:
    """The deployments of the stock operator, by its chart's label or by its image."""
    return [
        item
        for item in facts.deployments or []
        if item["spec"].get("replicas", 1) != 0
        and (labels(item).get("app.kubernetes.io/name") == _NAME or any(_NAME in image for image in _images(item)))
    ]


def _images(item: Json) -> list[str]:
    return [str(container.get("image", "")) for container in item["spec"]["template"]["spec"]["containers"]]


def _release(item: Json) -> str:
    metadata = item["metadata"]
    return f"{labels(item).get('app.kubernetes.io/instance', 'gpudask')} charts/gpudask -n {metadata['namespace']}"
