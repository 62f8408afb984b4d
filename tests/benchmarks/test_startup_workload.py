"""All contestants run the same: the pods by hand are the operator's, but for their owner."""

from __future__ import annotations

from benchmarks.startup.rounds import order
from benchmarks.startup.workload import Rendered, dask_name, manifest
from gpudask.api.resource import parse
from gpudask.desired.workers import worker_pod


def test_the_pods_by_hand_are_the_operators_without_an_owner() -> None:
    body = manifest("small", "room", 2)
    cluster = parse(body | {"metadata": body["metadata"] | {"uid": "any"}})
    theirs = worker_pod(cluster, cluster.spec.pools[0], 1, "hand0")
    del theirs["metadata"]["ownerReferences"]
    assert Rendered(body).cpu_worker(1) == theirs


def test_nothing_by_hand_has_an_owner_that_would_have_it_collected() -> None:
    rendered = Rendered(manifest("small", "room", 2))
    objects = [*rendered.base(), rendered.cpu_worker(0), rendered.gpu_worker()]
    assert [item["kind"] for item in objects] == ["Service", "ConfigMap", "Secret", "Pod", "Pod", "Pod"]
    assert not [item for item in objects if "ownerReferences" in item["metadata"]]


def test_the_gpu_pool_begins_empty_and_keeps_its_pod_once_it_has_one() -> None:
    cpu, gpu = manifest("small", "room", 10)["spec"]["pools"]
    assert cpu["replicas"] == 10
    assert gpu["autoscale"] == {"min": 0, "max": 1, "idleTimeout": "1h"}


def test_workers_are_retired_by_the_name_that_they_register_under() -> None:
    pod = Rendered(manifest("small", "room", 2)).cpu_worker(7)
    assert dask_name(pod) in pod["spec"]["containers"][0]["args"]


def test_in_as_many_rounds_as_contestants_each_is_first_once() -> None:
    titles = ["floor", "gpudask", "peer"]
    assert {order(titles, number)[0] for number in range(3)} == set(titles)
    assert all(sorted(order(titles, number)) == titles for number in range(7))
    assert order([], 3) == []
