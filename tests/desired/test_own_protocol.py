"""A pool that speaks ucxx in a cluster of tcp: what its pods dial, what the scheduler is told, and who notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.resource import Cluster
from gpudask.desired import network, spec_hash
from gpudask.desired.runner import runner_pod
from gpudask.desired.scheduler import preload_pools, scheduler_pod, services
from gpudask.desired.workers import worker_pod
from tests.builders import a_cluster, a_pool
from tests.jobs.builders import job

OWN = {"protocol": "ucxx"}
HEADLESS = "demo-scheduler-headless"


def mixed(own: Json = OWN, **spec: Any) -> Cluster:
    return a_cluster(a_pool("cpu"), a_pool("gpu", gpu={"count": 2}, **own), **spec)


def worker(cluster: Cluster, name: str) -> Json:
    pool = next(pool for pool in cluster.spec.pools if pool.name == name)
    return dict(worker_pod(cluster, pool, 0, "abcde")["spec"]["containers"][0])


def address(container: Json) -> str:
    return str(next(word for word in container["args"] if "://" in word))


def variable(container: Json, name: str) -> str:
    return str(next(item["value"] for item in container["env"] if item["name"] == name))


def test_its_workers_dial_the_pod_at_a_port_of_their_own_and_all_others_the_service():
    cluster = mixed()
    gpu, cpu = worker(cluster, "gpu"), worker(cluster, "cpu")
    assert address(gpu) == f"ucxx://{HEADLESS}.default.svc:8788"
    assert gpu["args"][gpu["args"].index("--protocol") + 1] == "ucxx"
    assert address(cpu) == "tcp://demo-scheduler.default.svc:8786"
    assert "--protocol" not in cpu["args"]


def test_a_command_of_a_templates_own_finds_the_same_address():
    own = {"spec": {"containers": [{"name": "dask", "command": ["sh"], "args": ["-c", "mine"]}]}}
    gpu = worker(mixed(OWN | {"template": own}), "gpu")
    assert variable(gpu, "DASK_SCHEDULER_ADDRESS") == f"ucxx://{HEADLESS}.default.svc:8788"


def test_neither_the_scheduler_nor_other_pools_are_restarted_for_it():
    before, after = mixed({}), mixed()
    assert scheduler_pod(before, "s", "p") == scheduler_pod(after, "s", "p")
    (cpu, gpu), (cpu_after, gpu_after) = before.spec.pools, after.spec.pools
    assert spec_hash.of_worker(before.spec, cpu) == spec_hash.of_worker(after.spec, cpu_after)
    assert spec_hash.of_worker(before.spec, gpu) != spec_hash.of_worker(after.spec, gpu_after)


@pytest.mark.parametrize("pool", ["cpu", "gpu"])
def test_any_pool_may_have_it(pool: str):
    cluster = a_cluster(a_pool(pool, **OWN, **({"gpu": {}} if pool == "gpu" else {})))
    assert address(worker(cluster, pool)).startswith("ucxx://")
    assert preload_pools(cluster)[pool]["listen"] == {"ucxx": 8788}


def test_the_headless_service_leads_to_the_further_port_by_its_number():
    """The scheduler's container does not name it: no word of that pod may change for such a pool."""
    plain, headless = services(mixed())
    assert headless["metadata"]["name"] == HEADLESS
    assert headless["spec"]["clusterIP"] == "None"
    *known, further = headless["spec"]["ports"]
    assert known == plain["spec"]["ports"]
    assert further == {"name": "ucxx-comm", "port": 8788, "targetPort": 8788, "protocol": "TCP"}


def test_without_such_a_pool_there_is_one_service_and_the_preload_is_told_as_ever():
    assert len(services(mixed({}))) == 1
    assert not any("listen" in pool for pool in preload_pools(mixed({})).values())


def test_only_its_pool_asks_the_scheduler_to_listen():
    told = preload_pools(mixed())
    assert "listen" not in told["cpu"]
    assert told["gpu"] == {"accepts": "annotated", "gpu": True, "offers": {"GPU": 1.0}, "listen": {"ucxx": 8788}}


def test_the_clusters_own_pods_reach_that_port():
    own, operator = network.policy(mixed(), "ops")["spec"]["ingress"]
    assert "ports" not in own, "those of the cluster reach every port: UCX opens more"
    assert [port["port"] for port in operator["ports"]] == [8787]


def test_programs_of_jobs_go_on_with_tcp():
    runner = runner_pod(job(), 1, mixed())["spec"]["containers"][0]
    assert variable(runner, "DASK_SCHEDULER_ADDRESS") == "tcp://demo-scheduler.default.svc:8786"


@pytest.mark.parametrize("protocol", ["ucxx", "tls"])
def test_beside_another_protocol_it_changes_nothing(protocol: str):
    """`ucxx` says the same; and tls may be in force yet, after an edit, until the scheduler is replaced."""
    plain, edited = mixed({}, protocol=protocol), mixed()
    in_force = replace(edited, spec=edited.spec.model_copy(update={"protocol": protocol}))
    for with_it, without in zip(in_force.spec.pools, plain.spec.pools, strict=True):
        assert spec_hash.of_worker(in_force.spec, with_it) == spec_hash.of_worker(plain.spec, without)
        assert worker_pod(in_force, with_it, 0, "n") == worker_pod(plain, without, 0, "n")
    assert services(in_force) == services(plain)
    assert preload_pools(in_force) == preload_pools(plain)
