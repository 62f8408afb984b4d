"""`heldData.releaseAfter`: results that keep an idle GPU are given up in time, and nothing brings the GPU back."""

from __future__ import annotations

import time

import pytest

from distributed import wait
from gpudask_e2e import ends, make_only_on_gpu, read_only_on_gpu, record

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space
from tests.eventually import steadily

GPU = {"GPU": 1}
RELEASE_AFTER_SECONDS = 30  # long after a status of five seconds ago


def test_a_result_that_keeps_a_gpu_is_given_up_after_its_time_and_computed_again_only_when_asked(space: Space) -> None:
    releasing = gpu(
        autoscale={"min": 0, "max": 2, "idleTimeout": "2s"}, heldData={"releaseAfter": f"{RELEASE_AFTER_SECONDS}s"}
    )
    space.apply(cluster("releasing", cpu(), releasing))
    space.wait_ready("releasing")
    with space.client("releasing") as client:
        record(client)
        value = client.submit(make_only_on_gpu, 7, resources=GPU, pure=False)
        wait(value, timeout=60)
        idle_since = time.monotonic()
        space.wait(lambda: "OnlyOnGpu" in space.pool("releasing", "gpu")["held"], "the status names what keeps the GPU")
        degraded = space.condition("releasing", "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "DrainBlocked")
        assert value.status == "finished", "it was given up before the status said what keeps the GPU"
        space.wait(lambda: not space.names("releasing", "gpu"), "the pod leaves")
        assert time.monotonic() - idle_since >= RELEASE_AFTER_SECONDS - 1  # it was idle before this program heard of it
        events = space.get("events")
        assert any(event["reason"] == "DrainBlocked" and "OnlyOnGpu" in event["note"] for event in events)
        space.wait_pods("releasing", "gpu", 0)
        steadily(lambda: not space.pods("releasing", "gpu"), "nothing computes it again", seconds=3, show=space.show)
        with pytest.raises(RuntimeError, match=r"was let go with the idle worker releasing-gpu-worker-0.*releaseAfter"):
            value.result(timeout=60)
        client.retry([value])
        read = client.submit(read_only_on_gpu, value, resources=GPU)
        assert read.result(timeout=60) == 7
        assert len(ends(client, [value.key])[value.key]) == 2
        del value, read
        space.wait_pods("releasing", "gpu", 0)
        space.wait(lambda: space.condition("releasing", "Degraded")["status"] == "False", "all is well again")
