"""The ledger: a script for each cause, and what the status says of it."""

from __future__ import annotations

from gpudask.api import Json

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dask
import pytest
from distributed import Client, wait
from gpudask_e2e import make_only_on_gpu, release, wait_for_release, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

GPU = {"GPU": 1}
IDLE_SECONDS = 12.0  # longer than live figures of a status are old
LIVE_SECONDS = 5.0
WORK_SECONDS = 4.0


def causes(space: Space, name: str) -> dict[str, Json]:
    return {each["cause"]: each for each in space.pool(name, "gpu").get("causes", ())}


def seconds(space: Space, name: str) -> dict[str, float]:
    return {cause: each.get("gpuSeconds", 0.0) for cause, each in causes(space, name).items()}


def holds(space: Space, name: str, cause: str) -> bool:
    """Whether the pool's one GPU has this cause now."""
    return {each: row["gpus"] for each, row in causes(space, name).items() if row.get("gpus")} == {cause: 1}


def adds_up(space: Space, name: str) -> None:
    pool = space.pool(name, "gpu")
    assert sum(each["gpuSeconds"] for each in pool["causes"]) == pytest.approx(pool["gpuSecondsHeld"], abs=0.01)
    working = sum(each["gpuSeconds"] for each in pool["causes"] if each["cause"] == "working")
    assert working == pytest.approx(pool["gpuSecondsUsed"], abs=0.01)
    assert sum(each["gpuSeconds"] for each in pool.get("owners", ())) == pytest.approx(working, abs=0.05)


@contextmanager
def ready(space: Space, name: str, *pools: Json) -> Iterator[Client]:
    space.apply(cluster(name, *pools))
    space.wait_ready(name)
    with space.client(name) as client:
        yield client


def test_a_life_from_zero_to_zero(space: Space) -> None:
    """It starts, works for two owners, waits for its idle timeout, drains, and is gone; each second has its cause."""
    scaled = gpu(autoscale={"min": 0, "max": 1, "idleTimeout": f"{IDLE_SECONDS:.0f}s"})
    with ready(space, "life", cpu(), scaled) as client:
        began = time.monotonic()
        with dask.annotate(owner="team-a"):
            first = client.submit(wait_for_release, 1, resources=GPU, pure=False)
        space.wait(lambda: holds(space, "life", "working"), "its GPU works")
        assert seconds(space, "life")["starting"] > 0
        time.sleep(WORK_SECONDS)  # what is measured
        client.run(release)
        assert first.result(timeout=60) == 1
        began_second = time.monotonic()
        with dask.annotate(owner="team-b"):
            second = client.submit(work, 2, WORK_SECONDS, resources=GPU, pure=False)
        assert second.result(timeout=60) == 2
        ended_second = time.monotonic()
        second_lasted = ended_second - began_second
        del first, second
        space.wait(lambda: holds(space, "life", "waitingIdleTimeout"), "it waits for its timeout")
        space.wait_pods("life", "gpu", 0)
        space.wait(lambda: not space.pool("life", "gpu").get("gpusHeld"), "the status says so")
        ended = time.monotonic()
        lasted = ended - began
        found = seconds(space, "life")
        assert found["working"] >= 2 * WORK_SECONDS - 0.5
        assert IDLE_SECONDS - 3 <= found["waitingIdleTimeout"] <= ended - ended_second + 3
        assert found["draining"] > 0
        assert sum(found.values()) <= lasted
        owners = {each["owner"]: each["gpuSeconds"] for each in space.pool("life", "gpu")["owners"]}
        assert owners["team-a"] >= WORK_SECONDS - 0.5
        assert WORK_SECONDS - 1.5 <= owners["team-b"] <= second_lasted + 1.5
        adds_up(space, "life")
        share = space.status("life")["summary"]["worked"]
        assert share == f"{100 * found['working'] / sum(found.values()):.0f}%"
        assert share in space.kubectl("get", "gdc", "life", "-o", "wide").stdout


def test_a_result_that_keeps_a_gpu_is_its_cause(space: Space) -> None:
    scaled = gpu(autoscale={"min": 0, "max": 1, "idleTimeout": "2s"})
    with ready(space, "result", cpu(), scaled) as client:
        value = client.submit(make_only_on_gpu, 7, resources=GPU, pure=False)
        wait(value, timeout=60)
        space.wait(lambda: holds(space, "result", "heldResult"), "the status says that a result holds it")
        before = seconds(space, "result")["heldResult"]
        space.wait(lambda: seconds(space, "result")["heldResult"] > before, "its seconds grow though nothing happens")
        del value
        space.wait_pods("result", "gpu", 0)
        space.wait(lambda: not space.pool("result", "gpu").get("gpusHeld"), "the status says so")
        adds_up(space, "result")


@pytest.mark.parametrize(
    ("name", "size", "cause"),
    [
        ("fixed", {"replicas": 1}, "heldByUser"),
        ("spare", {"autoscale": {"min": 1, "max": 2, "idleTimeout": "2s"}}, "spare"),
    ],
)
def test_a_size_that_keeps_an_idle_gpu_is_its_cause(space: Space, name: str, size: Json, cause: str) -> None:
    with ready(space, name, cpu(), gpu(**size)):
        space.wait(lambda: holds(space, name, cause), f"its GPU is {cause}")
        before = seconds(space, name)[cause]
        space.wait(lambda: seconds(space, name)[cause] > before + 2 * LIVE_SECONDS, "counted though nothing happens")
        adds_up(space, name)


def test_an_override_keeps_a_gpu_for_its_user(space: Space) -> None:
    with ready(space, "held", cpu(), gpu(autoscale={"min": 0, "max": 2, "idleTimeout": "2s"})):
        override = [{"pool": "gpu", "replicas": 1, "by": "alice"}]
        space.edit("held", {"op": "add", "path": "/spec/overrides", "value": override})
        space.wait(lambda: holds(space, "held", "heldByUser"), "it is held by its user")
        space.edit("held", {"op": "remove", "path": "/spec/overrides"})
        space.wait_pods("held", "gpu", 0)
        space.wait(lambda: seconds(space, "held").get("draining"), "and leaves")
        adds_up(space, "held")


def test_an_invalid_spec_holds_its_gpus_on(space: Space) -> None:
    """Nothing of the pool follows it, and its seconds count: as frozen."""
    with ready(space, "broken", cpu(), gpu(replicas=1)):
        space.wait(lambda: holds(space, "broken", "heldByUser"), "its GPU is there")
        space.edit("broken", {"op": "add", "path": "/spec/template", "value": {"spec": {"deep": deep(40)}}})
        space.wait(lambda: space.condition("broken", "Accepted")["status"] == "False", "it is refused")
        space.wait(lambda: holds(space, "broken", "frozen"), "its GPU is held for nothing")
        before = seconds(space, "broken")["frozen"]
        space.wait(lambda: seconds(space, "broken")["frozen"] > before, "and counted", seconds=90)


def deep(levels: int) -> Json:
    """An object of more levels than a spec may have."""
    return {"in": deep(levels - 1)} if levels else {}
