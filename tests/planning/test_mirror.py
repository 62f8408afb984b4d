"""What a change of the mirror means, and what the mirror shows, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api.pool import MAX_REPLICAS
from gpudask.desired import mirror
from gpudask.planning.mirror import shown, superfluous
from gpudask.planning.mirror_wishes import in_the_way, overrides_wanted, with_overrides
from gpudask.planning.mirrored import Mirrored, observe_mirrored
from tests.builders import a_pool
from tests.planning.builders import NOW, UID, cluster, gpu_pool, scaled

Json = dict[str, Any]
MIXED = [scaled(least=1, most=6), gpu_pool()]
FIXED = [a_pool(replicas=3), gpu_pool()]


def group(pool: str, size: int | None, *, was: str = "", **fields: Any) -> Mirrored:
    """The worker group of `pool`; `was`: what the operator wrote."""
    known: Json = {"uid": f"uid-{pool}", "name": f"demo-{pool}", "kind": mirror.WORKER_GROUP, "version": "10"}
    known |= {
        "owner": "default/demo",
        "controller": f"default/{UID}",
        "size": size,
        "mirrored": was,
        "editor": "kubectl",
    }
    return Mirrored(**known | fields)


def autoscaler(minimum: int | None, maximum: int | None, *, was: str | None = None, **fields: Any) -> Mirrored:
    """The autoscaler as adapt() makes it."""
    known: Json = {"uid": "uid-a", "name": "demo", "kind": mirror.AUTOSCALER, "version": "10", "owner": "default/demo"}
    known |= {"controller": "", "minimum": minimum, "maximum": maximum, "mirrored": was, "editor": "python"}
    return Mirrored(**known | fields)


def sizes(entry: Json | None) -> Any:
    """An override without its author; None: it is to go."""
    return None if entry is None else {key: value for key, value in entry.items() if key not in ("pool", "by")}


CPU_ADAPTED = [{"pool": "cpu", "min": 1, "max": 3, "by": "x"}]
CHANGES: dict[str, tuple[list[Json], list[Json], list[Mirrored], dict[str, Any]]] = {
    "what the operator wrote is nobody's wish": (FIXED, [], [group("cpu", 3, was="3"), group("gpu", None)], {}),
    "a size set on a group": (MIXED, [], [group("gpu", 4)], {"gpu": {"replicas": 4}}),
    "zero is a size": (MIXED, [], [group("gpu", 0)], {"gpu": {"replicas": 0}}),
    "the group called default is the first pool without GPUs": (
        [gpu_pool(), scaled()],
        [],
        [group("default", 2)],
        {"cpu": {"replicas": 2}},
    ),
    "a pool called default is the default": (
        [scaled(), scaled("default")],
        [],
        [group("default", 2)],
        {"default": {"replicas": 2}},
    ),
    "of two changes the last counts": (
        MIXED,
        [],
        [group("default", 2, version="99"), group("cpu", 5, version="100")],
        {"cpu": {"replicas": 5}},
    ),
    "what is granted already is asked for no more": (
        MIXED,
        [{"pool": "gpu", "replicas": 4, "by": "x"}],
        [group("gpu", 4)],
        {},
    ),
    "an override that has expired grants nothing": (
        MIXED,
        [{"pool": "gpu", "replicas": 4, "until": "2001-01-01T00:00:00Z"}],
        [group("gpu", 4)],
        {"gpu": {"replicas": 4}},
    ),
    "a size taken away gives the pool back": (
        MIXED,
        [{"pool": "gpu", "replicas": 4, "by": "x"}],
        [group("gpu", None, was="4")],
        {"gpu": None},
    ),
    "adapt() sets limits for the default pool": (MIXED, [], [autoscaler(1, 3)], {"cpu": {"min": 1, "max": 3}}),
    "adapt() without limits: the pool's own": (MIXED, [], [autoscaler(None, None)], {"cpu": {"min": 1, "max": 6}}),
    "adapt() without limits of a pool that has none": (
        FIXED,
        [],
        [autoscaler(None, None)],
        {"cpu": {"min": 0, "max": MAX_REPLICAS}},
    ),
    "a minimum over the pool's maximum raises that": (MIXED, [], [autoscaler(9, None)], {"cpu": {"min": 9, "max": 9}}),
    "adapt() again with the same limits changes nothing": (MIXED, CPU_ADAPTED, [autoscaler(1, 3)], {}),
    "scale() after adapt()": (MIXED, CPU_ADAPTED, [group("default", 2)], {"cpu": {"replicas": 2}}),
    "a group of no pool is nobody's": (MIXED, [], [group("other", 4)], {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str):
    pools, overrides, objects, expected = CHANGES[name]
    found = overrides_wanted(cluster(*pools, overrides=overrides), tuple(objects), NOW)
    assert {pool: sizes(entry) for pool, entry in found.items()} == expected


def test_the_override_says_who_set_it_and_where():
    found = overrides_wanted(cluster(*MIXED), (group("gpu", 4),), NOW)
    assert found["gpu"] == {"pool": "gpu", "replicas": 4, "by": "kubectl on DaskWorkerGroup demo-gpu"}


def test_an_autoscaler_that_was_deleted_leaves_the_size_as_it_is():
    adapted = cluster(*MIXED, overrides=CPU_ADAPTED)
    assert sizes(overrides_wanted(adapted, (), NOW, given_up=2)["cpu"]) == {"replicas": 2}
    assert overrides_wanted(cluster(*MIXED), (), NOW, given_up=2) == {}
    scaled_too = overrides_wanted(adapted, (group("default", 5),), NOW, given_up=2)
    assert sizes(scaled_too["cpu"]) == {"replicas": 5}


def test_other_pools_overrides_stay():
    there = [{"pool": "cpu", "replicas": 1, "until": "2030-01-01T00:00:00Z"}, {"pool": "gpu", "replicas": 2}]
    entry = {"pool": "gpu", "replicas": 4}
    assert with_overrides(there, {"gpu": entry}) == [there[0], entry]
    assert with_overrides(there, {"gpu": None}) == [there[0]]


def test_a_group_shows_a_size_only_where_somebody_set_one():
    of = cluster(scaled(), gpu_pool(), a_pool("himem"), overrides=[{"pool": "gpu", "replicas": 2}])
    desired = {"cpu": 3, "gpu": 2, "himem": 1}
    objects = {body["metadata"]["name"]: body for body in shown(of, desired, {"cpu": 1, "gpu": 2, "himem": 0}, NOW)}
    replicas = {name: body["spec"]["worker"]["replicas"] for name, body in objects.items()}
    assert replicas == {"demo": 3, "demo-default": None, "demo-cpu": None, "demo-gpu": 2, "demo-himem": 1}
    ready = {name: body["status"]["replicas"] for name, body in objects.items()}
    assert ready == {"demo": 1, "demo-default": 1, "demo-cpu": 1, "demo-gpu": 2, "demo-himem": 0}


def test_what_is_shown_is_nobodys_wish_when_it_comes_back():
    of = cluster(*MIXED, overrides=[*CPU_ADAPTED, {"pool": "gpu", "replicas": 2}])
    back = [observe_mirrored(body["kind"])(_stored(body)) for body in shown(of, {"cpu": 2}, {"cpu": 0, "gpu": 0}, NOW)]
    assert {item.kind for item in back} == set(mirror.KINDS)
    assert {item.owner for item in back} == {"default/demo"}
    assert not [item for item in back if item.set_by_person]
    assert overrides_wanted(of, tuple(back), NOW) == {}
    assert superfluous(of, tuple(back), shown(of, {}, {"cpu": 0, "gpu": 0}, NOW)) == []


def test_the_editor_is_the_last_program_but_ours_that_set_the_size():
    fields = {"f:spec": {"f:worker": {"f:replicas": {}}}}
    body = shown(cluster(*FIXED), {}, {"cpu": 0, "gpu": 0}, NOW)[1]
    body["metadata"]["managedFields"] = [
        {"manager": "python-httpx", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
        {"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1": fields},
        {"manager": "gpudask", "time": "2026-01-03T00:00:00Z", "fieldsV1": fields},
        {"manager": "labeller", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:metadata": {}}},
    ]
    assert observe_mirrored(body["kind"])(_stored(body)).editor == "kubectl"


def test_groups_of_removed_pools_go_and_an_autoscaler_whose_limits_hold_no_more():
    of = cluster(*MIXED)
    objects = (group("old", 1, was="1"), autoscaler(1, 3, was="1..3"), group("other", 1, controller="somebody"))
    wanted = shown(of, {}, {"cpu": 0, "gpu": 0}, NOW)
    assert [item.name for item in superfluous(of, objects, wanted)] == ["demo-old", "demo"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (replace(group("gpu", 1), foreign=True), "DaskWorkerGroup demo-gpu is handled by another operator"),
        (replace(group("gpu", 1), controller="another"), "belongs to an object with uid another"),
        (replace(group("other", 1), controller="another"), ""),
        (group("gpu", 1), ""),
        (autoscaler(1, 2), ""),
    ],
)
def test_what_is_in_the_way(item: Mirrored, words: str):
    found = in_the_way(cluster(*MIXED), (item,))
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize("mark", ["annotations", "finalizers"])
def test_the_stock_operator_leaves_marks(mark: str):
    body = _stored(mirror.dask_cluster(cluster(*MIXED), size=1, ready=0))
    name = "kopf.zalando.org/last-handled-configuration"
    body["metadata"][mark] = {name: "x"} if mark == "annotations" else [name]
    assert observe_mirrored(mirror.CLUSTER)(body).foreign


def _stored(body: Json) -> Json:
    return body | {"metadata": body["metadata"] | {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": "5"}}
