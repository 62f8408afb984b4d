"""The manifests of docs/gpu.md for UCX become the pods that the page speaks of, within the limits that it names."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.limits import Limits, violations
from gpudask.api.resource import Cluster, parse
from gpudask.desired.workers import worker_pod
from tests.docs.pages import manifests

CHARTS = ("serviceAccountName",)  # `limits.templateFields`, as the chart has it


def of_page(name: str) -> Cluster:
    bodies = [body for snippet, body in manifests() if snippet.page == "docs/gpu.md"]
    (body,) = [body for body in bodies if body["metadata"]["name"] == name]
    body["metadata"] |= {"namespace": "default", "uid": "1", "generation": 1}
    return parse(body)


def container(cluster: Cluster, pool: str) -> dict[str, Any]:
    section = next(each for each in cluster.spec.pools if each.name == pool)
    return dict(worker_pod(cluster, section, 0, "abcde")["spec"]["containers"][0])


@pytest.mark.parametrize("name", ["linked", "infiniband"])
def test_the_gpu_pool_speaks_ucx_and_the_cpu_pool_tcp(name: str):
    cluster = of_page(name)
    dialled = {pool: container(cluster, pool)["args"] for pool in ("cpu", "gpu")}
    assert f"tcp://{name}-scheduler.default.svc:8786" in dialled["cpu"]
    assert f"ucxx://{name}-scheduler-headless.default.svc:8788" in dialled["gpu"]


def test_a_pod_with_infiniband_has_the_device_and_may_lock_memory():
    gpu = container(of_page("infiniband"), "gpu")
    assert gpu["resources"]["limits"]["rdma/hca_shared_devices_a"] == "1"
    assert gpu["resources"]["requests"]["rdma/hca_shared_devices_a"] == "1"
    assert gpu["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert (gpu["securityContext"]["runAsUser"], gpu["securityContext"]["runAsNonRoot"]) == (0, False)


def test_the_charts_limits_refuse_it_until_the_page_s_are_set():
    spec = of_page("infiniband").spec
    (refusal,) = violations(spec, "default", Limits(template_fields=CHARTS))
    assert refusal.startswith("spec.pools[gpu].template.spec: capabilities is not allowed here")
    assert violations(spec, "default", Limits(template_fields=(*CHARTS, "capabilities"))) == []
