"""A Prometheus of this machine scrapes the operators while a program works: every panel of every dashboard shows it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import pytest
from gpudask_e2e import release, wait_for_release, work

from gpudask.api import Json
from local.operator.release import NAMESPACE
from local.programs.prometheus import Prometheus
from tests.alerts.queries import GRAFANA, panel_queries, rules
from tests.alerts.scraping import Server, Target
from tests.e2e.manifests import cluster, cpu, gpu, job
from tests.e2e.platform import Platform
from tests.e2e.space import Space
from tests.eventually import eventually

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.registry,
    pytest.mark.local_cluster("it reaches the operators' pods by their addresses"),
]
_NAME = "watched"


@pytest.fixture(scope="module")
def operators(platform: Platform) -> Iterator[list[Target]]:
    """Operators whose metrics may be read, and which attribute clusters by the dashboards' labels."""
    platform.install("metrics.service=true", "attribution={team,project,user}")
    yield [
        Target(f"{pod['status']['podIP']}:{_port(pod)}", pod["metadata"]["name"], NAMESPACE)
        for pod in platform.operator_pods()
        if "deletionTimestamp" not in pod["metadata"]
    ]
    platform.install()


def test_every_panel_shows_a_program_that_works(
    space: Space, operators: list[Target], prometheus: Prometheus, tmp_path: Path
) -> None:
    filled = {**GRAFANA, "$namespace": space.kubectl.namespace, "$cluster": _NAME}
    of = f'{{namespace="{space.kubectl.namespace}", cluster="{_NAME}"}}'
    with Server.running(prometheus.server, operators, tmp_path) as server:
        manifest = cluster(_NAME, cpu(), gpu(fallback={"to": ["cpu"], "after": "240s"}))
        manifest["metadata"]["labels"] = {"team": "vision", "project": "maps", "user": "ada"}
        space.apply(manifest)
        space.wait_ready(_NAME)
        for each in _jobs():
            space.apply(each)
        space.kubectl("wait", "--for=condition=Complete", "gdj/done", "--timeout=300s")
        with space.client(_NAME) as client:
            plain = client.map(work, range(20), seconds=0.1, pure=False)
            with dask.annotate(owner="ada"):
                client.submit(work, 1, seconds=1.0, resources={"GPU": 1}, pure=False).result(timeout=120)
                held = client.submit(wait_for_release, 1, resources={"GPU": 1}, pure=False)
            space.wait(lambda: space.pool(_NAME, "gpu").get("gpusBusy"), "a GPU works")
            for query in panel_queries():
                expression = query.filled(filled)
                eventually(partial(server.query, expression), f"{query} has an answer: {expression}", seconds=120)
            busy = f"max by (cluster) (gpudask_pool_gpus_busy{of})"
            eventually(lambda: _value(server.query(busy)) == 1, "one GPU works, as in the status")
            client.run(release)
            client.gather([*plain, held])
        found = {rule["name"]: rule for rule in server.rules()}
        assert found.keys() == rules("alert").keys() | rules("record").keys()
        assert {rule["health"] for rule in found.values()} == {"ok"}, [rule.get("lastError") for rule in found.values()]
        firing = [name for name, rule in found.items() if rule.get("state") == "firing"]
        assert not firing, "nothing is wrong"
        _assert_attributed(server, of)


def _jobs() -> list[Json]:
    """A job that ends, one that waits for a cluster, and a cron job whose time is far away."""
    never = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("never", "")["spec"]}}
    meta = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCronJob", "metadata": {"name": "never"}}
    return [job("done", "pass"), job("waits", "pass", cluster={"name": "nobodys"}), meta | {"spec": never}]


def _assert_attributed(server: Server, of: str) -> None:
    """GPU time stands beside the cluster's team, and beside the owner that the tasks name."""
    working = f'cluster_cause:gpudask_gpus:mean5m{of[:-1]}, cause="working"}} > 0'
    [row] = eventually(partial(server.query, working), "GPUs work")
    assert (row["metric"]["label_team"], row["metric"]["label_user"]) == ("vision", "ada")
    owned = f'pool_owner:gpudask_gpu_seconds:max{of[:-1]}, owner="ada"}} > 0'
    eventually(partial(server.query, owned), "they worked for the owner of the tasks")


def _value(rows: list[dict[str, Any]]) -> float | None:
    return float(rows[0]["value"][1]) if rows else None


def _port(pod: dict[str, Any]) -> int:
    """The port of the metrics."""
    ports = pod["spec"]["containers"][0]["ports"]
    return next(int(port["containerPort"]) for port in ports if port["name"] == "metrics")
