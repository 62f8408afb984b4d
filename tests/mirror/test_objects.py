"""The mirror's objects as they are rendered."""

from __future__ import annotations

from gpudask.mirror import objects
from gpudask.mirror.objects import render
from gpudask.mirror.overrides import requested_overrides
from gpudask.mirror.state import observe_mirror, superfluous
from tests.builders import a_pool
from tests.mirror.builders import CPU_ADAPTED, MIXED, stored
from tests.planning.builders import NOW, cluster, gpu_pool, scaled


def test_a_group_shows_a_size_only_where_somebody_set_one():
    of = cluster(scaled(), gpu_pool(), a_pool("himem"), overrides=[{"pool": "gpu", "replicas": 2}])
    desired = {"cpu": 3, "gpu": 2, "himem": 1}
    shown = {body["metadata"]["name"]: body for body in render(of, desired, {"cpu": 1, "gpu": 2, "himem": 0}, NOW)}
    replicas = {name: body["spec"]["worker"]["replicas"] for name, body in shown.items()}
    assert replicas == {"demo": 3, "demo-default": None, "demo-cpu": None, "demo-gpu": 2, "demo-himem": 1}
    ready = {name: body["status"]["replicas"] for name, body in shown.items()}
    assert ready == {"demo": 1, "demo-default": 1, "demo-cpu": 1, "demo-gpu": 2, "demo-himem": 0}


def test_what_is_shown_is_no_change_when_it_comes_back():
    of = cluster(*MIXED, overrides=[*CPU_ADAPTED, {"pool": "gpu", "replicas": 2}])
    back = [observe_mirror(body["kind"])(stored(body)) for body in render(of, {"cpu": 2}, {"cpu": 0, "gpu": 0}, NOW)]
    assert {item.kind for item in back} == set(objects.KINDS) - {objects.JOB}
    assert {item.owner for item in back} == {"default/demo"}
    assert not [item for item in back if item.set_by_person]
    assert requested_overrides(of, tuple(back), NOW) == {}
    assert superfluous(of, tuple(back), render(of, {}, {"cpu": 0, "gpu": 0}, NOW)) == []
