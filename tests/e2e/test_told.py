"""A program that is blocked on the real cluster hears why within 10 s of what the operator reports, and the cure.

The table with every text is `tests/kubecluster/test_conditions.py`; here the real operator, kubelets and quotas say it.
"""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from distributed import Client, wait

from gpudask import KubeCluster, KubeClusterError
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

WITHIN_SECONDS = 10.0
GPU = {"GPU": 1}
FAILS = {"spec": {"containers": [{"name": "dask", "command": ["false"]}]}}


@pytest.fixture(autouse=True)
def _kubeconfig(space: Space, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    caplog.set_level(logging.WARNING, "gpudask")


@contextmanager
def connected(space: Space, *pools: Json, **spec: Any) -> Iterator[tuple[KubeCluster, Client]]:
    space.apply(cluster("told", *(pools or (cpu(), gpu())), **spec))
    space.wait_ready("told")
    with KubeCluster.from_name("told", namespace=space.kubectl.namespace, quiet=True) as found, Client(found) as client:
        yield found, client


def hears(space: Space, log: pytest.LogCaptureFixture, *sentences: str, known: Callable[[], Any]) -> None:
    """Wait until the operator has reported it, and then no longer than a program may be left without a word."""
    space.wait(known, "the operator has reported it")
    began = time.monotonic()
    space.wait(
        lambda: all(each in log.text for each in sentences), f"a warning with {sentences}", seconds=WITHIN_SECONDS
    )
    took = time.monotonic() - began
    print(f"the program heard of it {took:.1f} s after the operator had reported it")
    assert took < WITHIN_SECONDS


def is_reported(space: Space, kind: str, reason: str) -> Callable[[], bool]:
    return lambda: space.condition("told", kind).get("reason") == reason


@pytest.mark.parametrize(
    ("asked", "cure"),
    [({"GPU": 3}, "write `GPU: 1`, or a pool whose workers offer 3 GPU"), ({"gpu": 1}, "did you mean `GPU`?")],
    ids=["an unservable kind", "the wrong case"],
)
def test_what_no_pool_serves(
    space: Space, caplog: pytest.LogCaptureFixture, asked: dict[str, float], cure: str
) -> None:
    with connected(space) as (_, client):
        future = client.submit(sum, [1, 2], resources=asked)
        hears(space, caplog, cure, known=is_reported(space, "DemandServable", "NoPoolServes"))
        future.cancel()


def test_a_quota_and_its_next_try_and_what_was_refused_comes_soon_after_it_is_lifted_twice(
    space: Space, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(space) as (_, client):
        for _ in range(2):
            space.limit("none", {"requests.nvidia.com/gpu": "0"})
            future = client.submit(sum, [1, 2], resources=GPU, pure=False)
            refused = is_reported(space, "Degraded", "QuotaExceeded")
            hears(space, caplog, "exceeded quota: none", "next try at", "Have the quota raised", known=refused)
            space.kubectl("delete", "resourcequota", "none")
            assert future.result(timeout=90) == 3
            future.release()
            space.wait_pods("told", "gpu", 0)


def test_no_node(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space, cpu(), gpu(count=16)) as (_, client):
        future = client.submit(sum, [1, 2], resources=GPU)
        hears(
            space,
            caplog,
            "Insufficient nvidia.com/gpu",
            "Ask for less",
            known=is_reported(space, "Degraded", "Unschedulable"),
        )
        future.cancel()


def test_an_image_that_cannot_be_pulled(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space) as (_, client):
        space.edit("told", {"op": "add", "path": "/spec/pools/1/image", "value": "registry.invalid/none:1"})
        space.wait_observed("told")
        future = client.submit(sum, [1, 2], resources=GPU)
        hears(
            space,
            caplog,
            "image registry.invalid/none:1",
            "DASK_GPUDASK__IMAGE",
            known=is_reported(space, "Degraded", "ImageNotPulled"),
        )
        future.cancel()


def test_a_crash_loop(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space, cpu(), gpu(template=FAILS)) as (_, client):
        future = client.submit(sum, [1, 2], resources=GPU)
        hears(space, caplog, "Read what it wrote: gpudask logs told", known=is_reported(space, "Degraded", "PodsFail"))
        future.cancel()


def test_a_suspended_cluster(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space) as (_, client):
        client.wait_for_workers(1, timeout=90)
        working = client.submit(time.sleep, 120)
        waiting = client.submit(sum, [1, 2], resources=GPU)
        space.edit("told", {"op": "add", "path": "/spec/suspend", "value": True})
        hears(space, caplog, "gpudask resume told", known=is_reported(space, "Ready", "Suspending"))
        client.cancel([working, waiting])


def test_an_edit_that_is_refused(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space):
        space.edit("told", {"op": "add", "path": "/spec/template/spec/tolerationz", "value": []})
        hears(
            space,
            caplog,
            "tolerationz",
            "kubectl edit gdc told",
            known=is_reported(space, "Accepted", "TemplateRefused"),
        )


def test_a_scheduler_that_is_busy_with_one_call(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    def be_busy() -> None:
        asyncio.get_running_loop().call_later(0.1, time.sleep, 20)  # the scheduler's loop answers nobody then

    with connected(space) as (_, client):
        waiting = client.submit(sum, [1, 2], resources=GPU)
        client.run_on_scheduler(be_busy)
        hears(space, caplog, "the scheduler has not answered", "gpudask logs told", known=lambda: True)
        waiting.cancel()


def test_a_scheduler_that_is_lost(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space) as (_, client):
        waiting = client.submit(sum, [1, 2], resources=GPU)
        space.limit("none", {"pods": "0"})
        (pod,) = space.names("told")
        space.kubectl("delete", "pod", pod, "--grace-period=1", "--wait=false")
        hears(space, caplog, "exceeded quota: none", known=is_reported(space, "Degraded", "QuotaExceeded"))
        waiting.cancel()


def test_more_workers_than_limits_allow(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    with connected(space, cpu(autoscale={"min": 1, "max": 2})) as (found, _):
        with pytest.raises(KubeClusterError, match="there can be 2 workers at most, and 5 are waited for"):
            found.wait_for_workers(5, timeout=30)
        assert "scale(5, pool='cpu')" in caplog.text


@pytest.mark.alone  # it takes all GPUs
def test_a_gpu_that_is_held(space: Space, caplog: pytest.LogCaptureFixture) -> None:
    """One GPU is held by an idle pod of another pool, for its actor, and the others by pods that nobody uses."""
    holds = [{**gpu(), "name": "old", "offers": {"OLD": 1}}, {**gpu(), "name": "gpu"}]
    with connected(space, cpu(), *holds) as (found, client):
        kept = client.submit(Counter, actor=True, resources={"OLD": 1})
        wait(kept, timeout=120)
        found.scale(16, pool="old")  # more than there are
        future = client.submit(sum, [1, 2], resources=GPU)
        hears(
            space,
            caplog,
            "idle pods hold GPUs",
            "let go of the futures",
            known=is_reported(space, "Degraded", "Unschedulable"),
        )
        future.cancel()
        kept.cancel()


def test_a_misspelt_field_of_a_template_fails_the_constructor_and_leaves_nothing(space: Space) -> None:
    manifest = cluster("told", cpu(template={"spec": {"nodeSelektor": {}}}))
    with pytest.raises(KubeClusterError, match="nodeSelektor"):
        KubeCluster("told", namespace=space.kubectl.namespace, custom_cluster_spec=manifest, quiet=True, timeout=120)
    space.wait(lambda: not space.get("gdc"), "the cluster is gone")
