"""Whole sequences in which the cheap pool cannot do it all. See `sequence` for the letters."""

from __future__ import annotations

import pytest

from tests.builders import a_pool
from gpudask.planning.observed.clocks import Clocks
from gpudask.planning.observed.observation import PoolMemory
from gpudask.planning.observed.pods import Pod
from gpudask.planning.actions import Plan
from gpudask.planning.plan import plan
from tests.planning.builders import NOW, cluster, demand, gpu_pool, pod, scaled, scheduler_pod, seen, tasks, worker
from tests.planning.sequence import Sequence, cancels, play, sets, submits
from tests.planning.world import World

CPU = a_pool(replicas=1)
SMALL = gpu_pool("small", most=2)
BIG = gpu_pool("big", count=4, most=2)

SPILL_OVER = {
    "at the cheap pool's maximum the rest goes to the dearer one, and that pool goes first": Sequence(
        [CPU, BIG, SMALL],
        [
            (None, 4, {}),
            (submits(10, 300, known=True, GPU=1), 1, {"small": "0P 1P", "big": "0P 1P"}),
            (None, 290, {"small": "0W 1W", "big": "0W 1W"}),
            (None, 50, {"small": "", "big": ""}),
        ],
    ),
    "work that the cheap pool does before a dear pod could is no reason for one": Sequence(
        [CPU, BIG, SMALL],
        [(None, 4, {}), (submits(40, 4, known=True, GPU=1), 10, {"small": "0W 1W", "big": ""})],
    ),
    "unknown durations spill over when the cheap pool is full and had time to tell them": Sequence(
        [CPU, BIG, SMALL],
        [
            (None, 4, {}),
            (submits(6, 100, GPU=1), 4, {"small": "0W", "big": ""}),
            (None, 2, {"small": "0W 1P", "big": ""}),
            (None, 3, {"small": "0W 1W", "big": ""}),
            (None, 2, {"small": "0W 1W", "big": "0P"}),
        ],
    ),
    "nodes that do not come: the dearer pool serves, the cheap one goes on waiting and takes over": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(nodes={"small": 0}), 4, {}),
            (submits(2, 500, known=True, GPU=1), 179, {"small": "0U 1U", "big": ""}),
            (None, 3, {"small": "0U 1U", "big": "0S"}),
            (None, 100, {"small": "0U 1U", "big": "0W"}),
            (submits(6, 300, known=True, GPU=1), 20, {"small": "0U 1U", "big": "0W 1W"}),
            (sets(nodes={}), 20, {"small": "0I 1I", "big": "0W 1W"}),
            (submits(2, 700, known=True, GPU=1), 20, {"small": "0W 1W", "big": "0W 1W"}),
            (None, 600, {"small": "0W 1W", "big": ""}),
        ],
    ),
    "no pod of either is left once the demand is gone": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(nodes={"small": 0}), 4, {}),
            (submits(2, 500, known=True, GPU=1), 190, {"small": "0U 1U", "big": "0W"}),
            (cancels, 1, {"small": "", "big": "0I"}),
            (None, 35, {"small": "", "big": ""}),
        ],
    ),
    "a quota refuses the cheap pool's pods: the dearer one serves at once, and the quota is tried again": Sequence(
        [CPU, BIG, SMALL],
        [
            (sets(quota={"small"}), 4, {}),
            (submits(2, 400, known=True, GPU=1), 1, {"small": "", "big": "0P"}),
            (None, 30, {"small": "", "big": "0W"}),
            (sets(quota=set()), 60, {"big": "0W"}),
            (submits(4, 400, known=True, GPU=1), 60, {"small": "0W 1W", "big": "0W"}),
        ],
    ),
    "a size set by hand is the room that there is": Sequence(
        [CPU, BIG, SMALL],
        [(None, 4, {}), (submits(6, 300, known=True, GPU=1), 4, {"small": "0W", "big": "0W 1W"})],
        spec={"overrides": [{"pool": "small", "replicas": 1, "by": "alice"}]},
    ),
    "plain tasks never reach a GPU pool that does not accept them": Sequence(
        [scaled("cpu", most=2), gpu_pool()],
        [(None, 4, {}), (submits(50, 300, known=True), 30, {"cpu": "0W 1W", "gpu": ""})],
    ),
    "where it accepts any they do": Sequence(
        [scaled("cpu", most=2), gpu_pool(accepts="any")],
        [(None, 4, {}), (submits(4, 300, known=True), 4, {"cpu": "0W 1W", "gpu": "0W 1W"})],
    ),
}


@pytest.mark.parametrize(
    "sequence", [pytest.param(sequence, id=name.replace(" ", "-")) for name, sequence in SPILL_OVER.items()]
)
def test_spill_over(sequence: Sequence):
    play(sequence)


@pytest.mark.parametrize(("wall_ahead", "expected"), [(0.0, {"small": 1, "big": 1}), (3600.0, {"small": 2, "big": 0})])
def test_a_size_set_by_hand_is_the_room_until_people_s_own_clock_says_that_it_is_over(
    wall_ahead: float, expected: dict[str, int]
):
    for_a_while = {"pool": "small", "replicas": 1, "by": "alice", "until": "2027-01-15T08:30:00Z"}
    of = cluster(CPU, BIG, SMALL, overrides=[for_a_while])
    says = demand(tasks(2, seconds=800.0, GPU=1))

    sizes = plan(seen(of, scheduler_pod(of), says=says, clocks=Clocks(wall_ahead=wall_ahead))).pools

    assert {name: sizes[name].size.pods for name in expected} == expected


# --- a pod that is there because tasks spilled over ---

OF = cluster(CPU, BIG, gpu_pool("small", most=1))
CHEAP, DEAR = pod(OF, "small"), pod(OF, "big")
DECIDED = {"big": PoolMemory(size=1)}


@pytest.mark.parametrize(
    ("cheap", "joined"),
    [
        pytest.param(CHEAP, {CHEAP.dask_name: NOW}, id="just-joined"),
        pytest.param(CHEAP, {CHEAP.dask_name: NOW, DEAR.dask_name: NOW}, id="all-first-heard-of-by-a-new-operator"),
        pytest.param(pod(OF, "small", running=False), {}, id="one-that-takes-another-s-place-starts"),
    ],
)
def test_it_stays_while_the_cheap_pool_is_tried_again(cheap: Pod, joined: dict[str, float]):
    workers = (*([worker(cheap)] if cheap.running else []), worker(DEAR))
    says = demand(tasks(2, GPU=1), workers=workers)
    planned = plan(seen(OF, scheduler_pod(OF), cheap, DEAR, says=says, joined=joined, memory=DECIDED))
    assert planned.pools["big"].size.pods == 1
    assert not planned.pools["big"].actions


@pytest.mark.parametrize("joined", [{}, {CHEAP.dask_name: NOW}])
def test_it_leaves_once_it_is_idle_where_the_cheap_pool_has_a_place_for_all_tasks(joined: dict[str, float]):
    says = demand(tasks(1, GPU=1), workers=(worker(CHEAP), worker(DEAR)))
    planned = plan(seen(OF, scheduler_pod(OF), CHEAP, DEAR, says=says, joined=joined, memory=DECIDED))
    assert planned.pools["big"].size.pods == 0


@pytest.mark.parametrize(("memory", "size"), [({}, 1), (DECIDED, 0)])
def test_it_leaves_by_no_first_decision_which_does_not_know_yet_what_is_refused(
    memory: dict[str, PoolMemory], size: int
):
    planned = plan(
        seen(OF, scheduler_pod(OF), DEAR, says=demand(tasks(1, GPU=1), workers=(worker(DEAR),)), memory=memory)
    )
    assert planned.pools["big"].size.pods == size
    assert bool(planned.pools["big"].actions) is (size == 0)
    assert planned.pools["small"].actions, "which asks"


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_none_is_made_before_the_cheap_pool_was_tried(seconds: float):
    says = demand(tasks(2, GPU=1), workers=(worker(CHEAP),))
    planned = plan(seen(OF, scheduler_pod(OF), CHEAP, says=says, joined={CHEAP.dask_name: NOW - seconds}))
    assert planned.pools["big"].size.pods == 0


def test_ready_pods_of_which_a_new_operator_first_hears_are_no_fewer_than_those_it_would_order():
    """Four of eight were ordered for the others' sake: that these were tried is what the new operator does not know."""
    of = cluster(CPU, gpu_pool(most=8))
    pods = [pod(of, "gpu", number, running=number < 5) for number in range(8)]
    heard = tuple(worker(each) for each in pods[:5])
    says = demand(tasks(8, GPU=1), workers=heard)
    joined, memory = {each.name: NOW for each in heard}, {"gpu": PoolMemory(size=8)}
    planned = plan(seen(of, scheduler_pod(of), *pods, says=says, joined=joined, memory=memory))
    assert planned.pools["gpu"].size.pods == 8
    assert not planned.pools["gpu"].actions


def test_one_that_starts_is_not_cancelled_by_a_new_operator_that_has_not_asked_the_quota_yet():
    world = World(cluster(CPU, BIG, SMALL), quota={"small"}, nodes={"big": 0})
    world.run(4)
    world.submit(2, 400, known=True, GPU=1)
    world.run(5)
    before = {pod.uid for pod in world.pods.values() if pod.pool == "big"}
    world.restart_operator()
    world.run(5)
    assert {pod.uid for pod in world.pods.values() if pod.pool == "big"} == before
    assert before
    world.cancel()
    world.run(1)
    assert not world.show("big")


def test_a_pool_of_a_fixed_size_says_when_its_node_is_taken_not_to_come():
    """It makes no more pods, so that nothing else looks again by then; and the tasks are the dearer pool's."""
    of = cluster(CPU, BIG, a_pool("small", gpu={"count": 1}, replicas=1))
    waits = pod(of, "small", running=False, unschedulable="no node", created=NOW - 100.0)
    says = demand(tasks(1, seconds=800.0, GPU=1))

    def planned(after: float) -> Plan:
        return plan(seen(of, scheduler_pod(of), waits, says=says, now=NOW + after))

    after = planned(0.0).requeue_after
    assert after is not None
    assert planned(0.0).pools["big"].size.pods == planned(after - 0.1).pools["big"].size.pods == 0
    assert planned(after).pools["big"].size.pods == 1
