"""What goes beyond an installation's limits is named with its field, and with what to write."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest

from gpudask.api.limits import Limits, violations, read
from tests.builders import a_pool, parsed_spec


NARROW = Limits(
    pods_per_cluster=4,
    gpus_per_cluster=8,
    service_types=("ClusterIP",),
    service_annotations=False,
    template_fields=(),
    closed_namespaces=("kube-system",),
)


def of(*pools: Json, **spec: Any) -> list[str]:
    return violations(parsed_spec(*pools, **spec), "default", NARROW)


def test_without_limits_nothing_goes_beyond_them() -> None:
    spec = parsed_spec(a_pool(replicas=1000), template={"spec": {"hostNetwork": True}})
    assert violations(spec, "kube-system", Limits()) == []


def test_what_is_within_the_limits_is_not_named() -> None:
    assert of(a_pool(replicas=2), a_pool("gpu", gpu={"count": 4}, autoscale={"max": 2})) == []


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        ({"serviceAccountName": "s3"}, "serviceAccountName"),
        ({"serviceAccount": "s3"}, "serviceAccountName"),
        ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"containers": [{"name": "dask", "ports": [{"containerPort": 1, "hostPort": 1}]}]}, "hostPort"),
        ({"containers": [{"name": "dask", "securityContext": {"privileged": True}}]}, "privileged"),
        (
            {"initContainers": [{"name": "i", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            "capabilities",
        ),
    ],
)
def test_each_template_is_looked_at_for(template: Json, field: str) -> None:
    words = f"template.spec: {field} is not allowed here: remove it"
    assert words in of(template={"spec": template})[0]
    assert of(scheduler={"template": {"spec": template}})[0].startswith(f"spec.scheduler.{words}")
    assert of(a_pool(template={"spec": template}))[0].startswith(f"spec.pools[cpu].{words}")


def test_kernels_are_kept_on_a_node_only_where_its_directories_may_be_used() -> None:
    pool = a_pool("gpu", gpu={"kernelCache": "/var/lib/kernels"})
    assert of(pool)[0].startswith("spec.pools[gpu].gpu.kernelCache: hostPath is not allowed here: remove it")
    assert violations(parsed_spec(pool), "team-a", Limits()) == []


@pytest.mark.parametrize(
    "template",
    [
        {"volumes": "x"},
        {"volumes": [None, 1, {"name": "a"}]},
        {"containers": {"a": "b"}},
        {"containers": [{"securityContext": [], "ports": 7}, {"securityContext": {"capabilities": "ALL"}}]},
        {"hostNetwork": False, "serviceAccountName": ""},
        {"containers": [{"name": "dask", "securityContext": {"capabilities": {"drop": ["ALL"]}}}]},
    ],
)
def test_a_template_of_any_shape_is_read(template: Json) -> None:
    assert of(template={"spec": template}) == []


def test_services_stay_inside() -> None:
    [kind, annotated] = of(scheduler={"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}})
    assert kind.startswith("spec.scheduler.service.type: LoadBalancer is not allowed here: write ClusterIP")
    assert annotated.startswith("spec.scheduler.service.annotations: none is allowed here")


def test_sizes_count_what_pools_may_grow_to_by_overrides_too() -> None:
    [said] = of(a_pool(autoscale={"max": 3}), a_pool("b", replicas=2))
    assert "may grow to 5 pods together, and a cluster has 4 at most" in said
    [said] = of(a_pool(replicas=1), overrides=[{"pool": "cpu", "replicas": 5}])
    assert "may grow to 5 pods" in said
    [said] = of(a_pool("gpu", gpu={"count": 4}, autoscale={"max": 3}))
    assert "may grow to 12 GPUs together, and a cluster has 8 at most" in said


def test_some_namespaces_have_no_clusters() -> None:
    [said] = violations(parsed_spec(), "kube-system", NARROW)
    assert said.startswith("metadata.namespace: no clusters run in kube-system")


def test_limits_are_read_as_the_chart_writes_them() -> None:
    assert read("") == Limits()
    found = read('{"podsPerCluster": 4, "gpusPerCluster": null, "serviceTypes": ["ClusterIP"], "templateFields": []}')
    assert found == Limits(pods_per_cluster=4, service_types=("ClusterIP",), template_fields=())


@pytest.mark.parametrize("text", ["{", '{"podsPerClusters": 4}', '{"podsPerCluster": 0}', '{"serviceTypes": ["x"]}'])
def test_limits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read(text)
