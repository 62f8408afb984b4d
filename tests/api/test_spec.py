"""What the models make of what a user writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.resource import InvalidSpecError, parse, parse_status
from gpudask.api.spec import Spec
from gpudask.api.status import Status
from tests.builders import a_cluster, a_manifest, a_pool, parsed_pool, parsed_spec


def test_the_smallest_spec_has_safe_defaults():
    spec = parsed_spec()
    assert (spec.protocol, spec.rollout, spec.suspend, spec.overrides) == ("tcp", "WhenIdle", False, [])
    assert spec.scheduler.resources == {"cpu": "500m", "memory": "2Gi"}
    assert spec.scheduler.service.type == "ClusterIP"
    (pool,) = spec.pools
    assert pool.resources == {"cpu": 1, "memory": "2Gi"}
    assert (pool.replicas, pool.autoscale, pool.gpu) == (None, None, None)


def test_an_autoscaled_pool_goes_to_zero_after_a_minute():
    autoscale = parsed_pool(autoscale={"max": 4}).autoscale
    assert autoscale is not None
    assert (autoscale.min, autoscale.idle_timeout_seconds, autoscale.target_duration_seconds) == (0, 60, 30)


def test_held_data_is_let_go_after_its_time():
    held = parsed_pool(heldData={"releaseAfter": "30m"}).held_data
    assert held is not None
    assert held.release_after_seconds == 1800


def test_a_gpu_block_asks_for_one_nvidia_gpu_on_nodes_that_have_them():
    gpu = parsed_pool("gpu", gpu={}).gpu
    assert gpu is not None
    assert (gpu.count, gpu.resource_name, gpu.launcher) == (1, "nvidia.com/gpu", "dask-cuda")
    assert gpu.node_selector == {"nvidia.com/gpu.present": "true"}


@pytest.mark.parametrize(
    ("fields", "gpus", "workers", "offers"),
    [
        ({}, 0, 1, {}),
        ({"gpu": {}}, 1, 1, {"GPU": 1}),
        ({"gpu": {"count": 4}}, 4, 4, {"GPU": 1}),
        ({"gpu": {"count": 4, "launcher": "dask"}}, 4, 1, {"GPU": 4}),
        ({"gpu": {"count": 2}, "offers": {"GPU": 2, "VRAM": "80G"}}, 2, 2, {"GPU": 2, "VRAM": 8e10}),
        ({"offers": {"MEMORY": "200G"}}, 0, 1, {"MEMORY": 2e11}),
        ({"gpu": {}, "offers": {}}, 1, 1, {}),
    ],
)
def test_what_a_pod_of_a_pool_holds(fields: dict[str, Any], gpus: int, workers: int, offers: dict[str, float]):
    pool = parsed_pool("p", **fields)
    assert (pool.gpus_per_pod, pool.workers_per_pod, pool.offered_resources) == (gpus, workers, offers)


@pytest.mark.parametrize(
    ("fields", "threads"),
    [
        ({}, 1),
        ({"resources": {"cpu": 4}}, 4),
        ({"resources": {"cpu": "1500m"}}, 2),
        ({"resources": {"cpu": "200m"}}, 1),
        ({"resources": {"memory": "2Gi"}}, 1),
        ({"resources": {"cpu": 8}, "gpu": {}}, 1),
        ({"resources": {"cpu": 8}, "gpu": {}, "nthreads": 3}, 3),
        ({"resources": {"cpu": 8}, "nthreads": 2}, 2),
    ],
)
def test_threads_of_a_worker(fields: dict[str, Any], threads: int):
    assert parsed_pool("p", **fields).threads_per_worker == threads


CPU, GPU = a_pool("cpu"), a_pool("gpu", gpu={})


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([CPU], ["any"]),
        ([GPU], ["any"]),
        ([CPU, GPU], ["any", "annotated"]),
        ([GPU, a_pool("gpu2", gpu={})], ["any", "any"]),
        ([CPU, GPU | {"accepts": "any"}], ["any", "any"]),
        ([CPU | {"accepts": "annotated"}, GPU], ["annotated", "any"]),
        ([GPU, a_pool("gpu2", gpu={}, accepts="any")], ["annotated", "any"]),
        ([GPU | {"accepts": "annotated"}], ["annotated"]),
    ],
)
def test_which_pools_take_tasks_without_annotations(pools: list[dict[str, Any]], expected: list[str]):
    spec = parsed_spec(*pools)
    assert [spec.accepts(pool) for pool in spec.pools] == expected


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([None, "any", "annotated"])), min_size=1, max_size=5))
def test_plain_tasks_have_a_pool_unless_every_pool_says_no(drawn: list[tuple[bool, str | None]]):
    pools = [
        a_pool(f"p{i}", **({"gpu": {}} if gpu else {}), **({"accepts": accepts} if accepts else {}))
        for i, (gpu, accepts) in enumerate(drawn)
    ]
    spec = parsed_spec(*pools)
    somewhere = any(spec.accepts(pool) == "any" for pool in spec.pools)
    assert somewhere or all(accepts == "annotated" for _, accepts in drawn)


def test_a_resource_knows_its_owner_reference():
    cluster = a_cluster(name="demo")
    assert cluster.key == "default/demo"
    assert cluster.reference == {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "name": "demo",
        "uid": "uid-of-demo",
        "controller": True,
    }


def test_a_refused_spec_names_every_fault():
    body = a_manifest(a_pool("gpu-2"), a_pool("cpu", nthreads=0))
    body["metadata"] |= {"namespace": "default", "uid": "1"}
    with pytest.raises(
        InvalidSpecError, match=r"^spec\.pools\[0\]\.name: a pool's name .*; spec\.pools\[1\]\.nthreads: "
    ):
        parse(body)


def test_a_foreign_status_is_read_as_none():
    assert parse_status({"status": {"pools": "many"}}) == Status()
    assert parse_status({}) == Status()


def test_what_a_newer_operator_wrote_loses_no_counter():
    condition = {"type": "Audited", "status": "True", "reason": "NotInventedYet", "message": "", "newer": [1]}
    pool = {"name": "gpu", "gpuSecondsHeld": 7.5, "newer": {}}
    found = parse_status({"status": {"conditions": [condition], "pools": [pool], "newer": 1}})
    assert found.pools[0].gpu_seconds_held == 7.5
    assert (found.conditions[0].type, found.conditions[0].reason) == ("Audited", "NotInventedYet")


def test_names_in_json_are_camel_case():
    written = Spec.model_validate(
        {"image": "x", "imagePullPolicy": "Never", "pools": [{"name": "a", "shmSize": "1Gi"}]}
    )
    again = written.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert again == {"image": "x", "imagePullPolicy": "Never", "pools": [{"name": "a", "shmSize": "1Gi"}]}
