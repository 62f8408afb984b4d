"""The operator dies at every step of a drain: the next one goes on with it, and nothing is cut or done twice."""

from __future__ import annotations

import pytest

import gc
from collections import Counter
from typing import Any

import dask
import dask.dataframe
from distributed import Client
from gpudask_e2e import Tally, part_of, drains, lead, read_record, record, release, shuffles, wait_for_release

from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space
from tests.eventually import steadily

pytestmark = [
    pytest.mark.alone,  # it ends the operator
    pytest.mark.local_cluster("it ends the operator's process as a crash does"),
]


def test_a_drain_whose_operator_dies_at_each_of_its_steps_cuts_nothing_and_ends(space: Space) -> None:
    space.apply(cluster("steps", cpu(replicas=2, nthreads=8)))
    space.wait_workers("steps", "cpu", 2)
    with space.client("steps") as client:
        record(client)
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        tallies = [
            client.submit(Tally, actor=True, workers=[address], key=f"tally-{n}").result()
            for n, address in enumerate(addresses)
        ]
        assert [tally.add(n).result() for n, tally in enumerate(tallies)] == [0, 1]
        futures = [client.submit(lead, 3, workers=[address], pure=False) for address in addresses]
        futures += client.map(wait_for_release, range(4), pure=False)
        shuffled = client.compute(_shuffle())
        space.wait(lambda: client.run_on_scheduler(shuffles), "the shuffle has begun")

        space.edit("steps", {"op": "replace", "path": "/spec/pools/0/replicas", "value": 1})
        space.platform.replace_operator()
        (leaving,) = space.wait(lambda: space.retiring("steps", "cpu"), "one retires")
        space.platform.replace_operator()
        space.wait(lambda: _drain(client, leaving) == "draining", "the scheduler drains it")
        space.platform.replace_operator()
        steadily(lambda: len(space.names("steps", "cpu")) == 2, "a pod that works stays", seconds=3)

        client.run(release)
        assert client.gather(futures) == [3, 3, 0, 1, 2, 3]
        assert shuffled.result() == sum(range(16))
        space.wait(lambda: "actor" in space.pool("steps", "cpu").get("held", ""), "the actor keeps it, says the status")
        space.platform.replace_operator()
        steadily(lambda: len(space.names("steps", "cpu")) == 2, "a pod with an actor stays", seconds=3)
        assert [tally.add(1).result() for tally in tallies] == [1, 2], "an actor began anew"

        replicas = space.platform.scale_operator(0)
        try:
            del tallies
            gc.collect()  # an actor is let go with its last reference, which may lie in a cycle
            space.wait(lambda: _drain(client, leaving) == "drained", "it is drained while no operator is there")
            assert len(space.names("steps", "cpu")) == 2
        finally:
            space.platform.scale_operator(replicas)
        space.wait(lambda: leaving not in space.names("steps", "cpu"), "it is asked to end")
        space.platform.replace_operator()
        space.wait_pods("steps", "cpu", 1)
        space.wait(lambda: not space.pool("steps", "cpu").get("retiring"), "the status says that it is over")
        assert client.submit(wait_for_release, 7).result(timeout=60) == 7, "the worker that stays does not work"
        executions = Counter(key for key, _, _ in client.run_on_scheduler(read_record))
        assert {key: n for key, n in executions.items() if n != 1} == {}, "done twice"


def _shuffle() -> Any:
    """The sum of a table that goes through a P2P shuffle, all but one of whose parts wait for `release`."""
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        table = dask.dataframe.from_map(part_of, range(4), meta=part_of(0))
        return table.shuffle("a").a.sum()


def _drain(client: Client, pod: str) -> str:
    """How far the drain of a pod's worker is, as the preload tells the operator."""
    return next((state for name, state in client.run_on_scheduler(drains).items() if name.startswith(pod)), "")
