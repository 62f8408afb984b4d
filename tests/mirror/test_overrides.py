"""The overrides that follow from a change of the mirror, as a table."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest

from gpudask.api.pool import MAX_REPLICAS
from gpudask.mirror import objects
from gpudask.mirror.overrides import requested_overrides, with_overrides
from gpudask.mirror.state import MirrorObject
from tests.mirror.builders import CPU_ADAPTED, FIXED, MIXED, autoscaler, group
from tests.planning.builders import NOW, cluster, gpu_pool, scaled


def sizes(entry: Json | None) -> Any:
    """An override without its author; None: it is to go."""
    return None if entry is None else {key: value for key, value in entry.items() if key not in ("pool", "by")}


CHANGES: dict[str, tuple[list[Json], list[Json], list[MirrorObject], dict[str, Any]]] = {
    "what the operator wrote is nobody's change": (FIXED, [], [group("cpu", 3, was="3"), group("gpu", None)], {}),
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
    "what is in force already is asked for no more": (
        MIXED,
        [{"pool": "gpu", "replicas": 4, "by": "x"}],
        [group("gpu", 4)],
        {},
    ),
    "an override that has expired is not in force": (
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
    "limits in an annotation are part of the pool, and end what was set before": (
        MIXED,
        [{"pool": "gpu", "replicas": 3}],
        [group("gpu", 3, was="3", limits="0..8")],
        {"gpu": None},
    ),
    "what has limits follows demand, and that is nobody's change": (
        MIXED,
        [],
        [group("gpu", None, was="0..8", limits="0..8")],
        {},
    ),
    "limits that come with a size win": (MIXED, [], [group("gpu", 5, was="2", limits="0..8")], {}),
    "a size that is set on what has limits holds": (
        MIXED,
        [],
        [group("gpu", 0, was="0..8", limits="0..8")],
        {"gpu": {"replicas": 0}},
    ),
    "until it is taken away": (
        MIXED,
        [{"pool": "gpu", "replicas": 3}],
        [group("gpu", None, was="3 0..8", limits="0..8")],
        {"gpu": None},
    ),
    "other limits end it, too": (
        MIXED,
        [{"pool": "gpu", "replicas": 3}],
        [group("gpu", 3, was="3 0..8", limits="0..9")],
        {"gpu": None},
    ),
    "limits taken away leave the size that the pool has": (
        MIXED,
        [],
        [group("gpu", None, was="0..8")],
        {"gpu": {"replicas": 6}},
    ),
    "limits taken away for a size": (MIXED, [], [group("gpu", 2, was="0..8")], {"gpu": {"replicas": 2}}),
    "limits taken away where a size was set leave that": (
        MIXED,
        [{"pool": "gpu", "replicas": 3}],
        [group("gpu", 3, was="3 0..8")],
        {},
    ),
    "a size of a DaskCluster with limits is the default pool's": (
        MIXED,
        [],
        [group("demo", 4, was="2 0..8", limits="0..8", kind=objects.CLUSTER, name="demo")],
        {"cpu": {"replicas": 4}},
    ),
    "a group of no pool is nobody's": (MIXED, [], [group("other", 4)], {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str):
    pools, overrides, items, expected = CHANGES[name]
    found = requested_overrides(cluster(*pools, overrides=overrides), tuple(items), NOW, sizes={"gpu": 6})
    assert {pool: sizes(entry) for pool, entry in found.items()} == expected


def test_the_override_says_who_set_it_and_where():
    found = requested_overrides(cluster(*MIXED), (group("gpu", 4),), NOW)
    assert found["gpu"] == {"pool": "gpu", "replicas": 4, "by": "kubectl on DaskWorkerGroup demo-gpu"}


def test_an_autoscaler_that_was_deleted_leaves_the_size_as_it_is():
    adapted = cluster(*MIXED, overrides=CPU_ADAPTED)
    assert sizes(requested_overrides(adapted, (), NOW, kept_size=2)["cpu"]) == {"replicas": 2}
    assert requested_overrides(cluster(*MIXED), (), NOW, kept_size=2) == {}
    scaled_too = requested_overrides(adapted, (group("default", 5),), NOW, kept_size=2)
    assert sizes(scaled_too["cpu"]) == {"replicas": 5}


def test_other_pools_overrides_stay():
    there = [{"pool": "cpu", "replicas": 1, "until": "2030-01-01T00:00:00Z"}, {"pool": "gpu", "replicas": 2}]
    entry = {"pool": "gpu", "replicas": 4}
    assert with_overrides(there, {"gpu": entry}) == [there[0], entry]
    assert with_overrides(there, {"gpu": None}) == [there[0]]
