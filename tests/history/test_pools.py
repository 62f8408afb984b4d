"""The pools' rows of a record have the status' ledger, and keep that of pools that the spec has no more."""

from __future__ import annotations

from gpudask.api.reasons import Cause
from gpudask.api.record import RecordedPool
from gpudask.api.status import CauseSeconds, OwnerSeconds, PoolStatus, Status
from gpudask.history import pools
from tests.planning.builders import cluster, gpu_pool


def row(name: str, **seconds: float) -> RecordedPool:
    """A pool's row; `seconds`: GPU-seconds by cause."""
    causes = [{"cause": cause, "gpuSeconds": amount} for cause, amount in seconds.items()]
    return RecordedPool.model_validate({"name": name, "gpus": 2, "nodeSelector": {"a": "b"}, "causes": causes})


def test_a_row_has_the_causes_and_owners_of_the_status():
    status = PoolStatus(
        name="gpu",
        causes=[CauseSeconds(cause=Cause.WORKING, gpus=1, gpu_seconds=3.5)],
        owners=[OwnerSeconds(owner="team-a", gpu_seconds=3.5)],
    )
    (found,) = pools.rows(cluster(gpu_pool(count=2)).spec.pools, Status(pools=[status]))
    assert found.gpus == 2
    assert [(item.cause, item.gpu_seconds) for item in found.causes] == [("working", 3.5)]
    assert [(item.owner, item.gpu_seconds) for item in found.owners] == [("team-a", 3.5)]


def test_a_pool_that_the_status_has_no_more_keeps_its_row_where_it_held_gpus():
    found = pools.merged([row("old", working=7.0), row("cpu")], [row("gpu", spare=1.0)])
    assert [(pool.name, sum(item.gpu_seconds for item in pool.causes)) for pool in found] == [
        ("gpu", 1.0),
        ("old", 7.0),
    ]


def test_a_pool_that_leaves_the_spec_keeps_what_the_spec_said_of_it():
    leaves = RecordedPool.model_validate({"name": "gpu", "causes": [{"cause": "draining", "gpuSeconds": 9.0}]})
    (found,) = pools.merged([row("gpu", draining=8.0)], [leaves])
    assert (found.gpus, found.node_selector) == (2, {"a": "b"})
    assert found.causes[0].gpu_seconds == 9.0
