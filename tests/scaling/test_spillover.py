"""What is too much for the cheapest pool goes to the next that can serve it, and only that."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from gpudask.scaling.assignment import Capacity, assign
from gpudask.scaling.demand import Requirement
from tests.builders import a_pool, parsed_spec
from tests.planning.builders import gpu_pool, scaled, tasks

CPU = scaled("cpu", most=4)
SMALL = gpu_pool("small", most=4)
BIG = gpu_pool("big", count=4, most=4)
ALSO = gpu_pool("also", count=8, accepts="any")
# `big` is expected to start in a minute and to clear a queue in 30 s: a pod of `small` can do 90 s of work till then.
FULL, TRYING = Capacity(4, all_warmed_up=True), Capacity(4, all_warmed_up=False)


def pods_of(*requirements: Requirement, **capacities: Capacity) -> dict[str, tuple[float, float]]:
    """Of each GPU pool the pods that its tasks fill, and the seconds of work for full pods of it."""
    shares = assign(parsed_spec(CPU, BIG, SMALL), requirements, capacities).shares
    return {name: (shares[name].pods, round(shares[name].pod_seconds, 3)) for name in ("small", "big")}


@pytest.mark.parametrize(
    ("capacity", "requirement", "small", "big"),
    [
        (FULL, tasks(4, GPU=1), (4, 0), (0, 0)),  # a task for each pod
        (FULL, tasks(0, running=4, GPU=1), (4, 0), (0, 0)),
        (FULL, tasks(12, GPU=1), (12, 0), (2, 0)),  # of unknown duration: what has no pod
        (TRYING, tasks(12, GPU=1), (12, 0), (2, 0)),  # it doubles first: none of these counts, see below
        (FULL, tasks(12, seconds=360, GPU=1), (12, 360), (2, 0)),  # 90 s for four pods: no more than they can do
        (FULL, tasks(12, seconds=720, GPU=1), (12, 720), (2, 90)),  # half of it is too much; four workers a pod
        (FULL, tasks(5, seconds=5000, GPU=1), (5, 5000), (0.25, 250)),  # one task of five has no pod
        (Capacity(0, all_warmed_up=True), tasks(3, GPU=1), (3, 0), (0.75, 0)),  # no pod at all can come
        (Capacity(2, all_warmed_up=True), tasks(3, GPU=1), (3, 0), (0.25, 0)),
    ],
)
def test_the_rest_goes_to_the_next_pool(capacity: Capacity, requirement: Requirement, small: tuple, big: tuple):
    assert pods_of(requirement, small=capacity) == {"small": small, "big": big}


@pytest.mark.parametrize(("capacity", "unknown"), [(TRYING, 0.0), (FULL, 2.0)])
def test_unknown_durations_spill_only_when_all_pods_had_time_to_tell_them(capacity: Capacity, unknown: float):
    share = assign(parsed_spec(BIG, SMALL), (tasks(12, GPU=1),), {"small": capacity}).shares["big"]
    assert (share.pods_unknown, bool(share.unrunnable)) == (unknown, unknown > 0)


def test_the_next_pools_own_start_counts():
    slow = {"small": FULL, "big": Capacity(4, start_seconds=300.0)}
    assert pods_of(tasks(12, seconds=720, GPU=1), **slow)["big"] == (2, 0), "four pods do it in 180 s"


def test_demand_that_one_pool_alone_can_serve_takes_its_room_first():
    spec = parsed_spec(BIG, gpu_pool("small", most=4, offers={"GPU": 1, "FAST": 1}))
    shares = assign(spec, (tasks(2, GPU=1), tasks(3, GPU=1, FAST=1)), {"small": FULL}).shares
    assert (shares["small"].pods, shares["big"].pods) == (5, 0.25)
    assert shares["big"].pods_unknown == 0.25, "one of the two has no pod"


def test_it_goes_on_from_pool_to_pool():
    spec = parsed_spec(gpu_pool("eight", count=8), BIG, SMALL)
    capacities = {"small": Capacity(2, all_warmed_up=True), "big": Capacity(1, all_warmed_up=True)}
    shares = assign(spec, (tasks(14, GPU=1),), capacities).shares
    assert {name: share.pods for name, share in shares.items()} == {"small": 14, "big": 3, "eight": 1}
    assert [shares[name].spills_from for name in ("small", "big", "eight")] == ["", "small", "big"]


@pytest.mark.parametrize(("pool", "spills"), [(ALSO, True), (BIG, False)])
def test_plain_tasks_go_to_a_gpu_pool_only_where_it_accepts_them(pool: dict, spills: bool):
    shares = assign(parsed_spec(CPU, pool), (tasks(100),), {"cpu": FULL}).shares
    assert bool(shares[pool["name"]].pods) is spills


def test_what_the_cheap_pool_cannot_have_it_still_asks_for():
    none = {"small": Capacity(0, all_warmed_up=True)}
    share = assign(parsed_spec(BIG, SMALL), (tasks(3, GPU=1),), none).shares["small"]
    assert (share.unrunnable, share.pods) == (3, 3)


def test_look_ahead_is_for_the_cheapest_pool_that_can_have_a_pod():
    soon = Requirement((("GPU", 1.0),), waiting=3, next_seconds=20.0, next_tasks=3)
    spec = parsed_spec(BIG, SMALL)

    def ahead(capacity: Capacity) -> dict[str, float | None]:
        shares = assign(spec, (soon,), {"small": capacity}).shares
        return {name: share.next_seconds for name, share in shares.items()}

    assert ahead(FULL) == {"big": None, "small": 20.0}
    assert ahead(Capacity(0, all_warmed_up=True)) == {"big": 20.0, "small": None}


def test_a_fixed_pool_that_is_there_anyway_takes_what_does_not_fit_at_once():
    spec = parsed_spec(gpu_pool("small", most=2), a_pool("big", gpu={"count": 4}, replicas=1))
    share = assign(spec, (tasks(6, seconds=6, GPU=1),), {"small": Capacity(2, all_warmed_up=True)}).shares["big"]
    assert (share.unrunnable, share.pods) == (4, 1)


demands = st.builds(
    lambda waiting, running, each, unknown: Requirement(
        (("GPU", 1.0),),
        unrunnable=waiting,
        processing=running,
        seconds=each * (waiting + running) * (1 - unknown),
        unknown=round(unknown * (waiting + running)),
    ),
    st.integers(0, 200),
    st.integers(0, 20),
    st.floats(0.1, 1000),
    st.sampled_from([0.0, 0.5, 1.0]),
)
capacities = st.builds(Capacity, st.integers(0, 10).map(float), st.booleans(), st.none() | st.floats(0, 600))


@given(demands, capacities, capacities)
def test_never_more_is_passed_on_than_there_is_and_nothing_while_the_tasks_fit(
    requirement: Requirement, small: Capacity, big: Capacity
):
    shares = assign(parsed_spec(BIG, SMALL), (requirement,), {"small": small, "big": big}).shares
    first, then = shares["small"], shares["big"]
    assert (first.unrunnable, first.processing) == (requirement.unrunnable, requirement.processing)
    assert then.unrunnable <= requirement.unrunnable
    assert then.processing <= requirement.processing
    assert then.pod_seconds * 4 <= requirement.seconds + 1e-6
    assert then.pods * 4 <= requirement.active
    if requirement.active <= small.pods:
        assert (then.pods, then.pod_seconds, then.pods_unknown) == (0, 0, 0)


@given(demands, capacities, st.integers(1, 5))
def test_more_room_never_passes_on_more(requirement: Requirement, small: Capacity, more: int):
    def passed_on(pods: float) -> float:
        capacity = Capacity(pods, small.all_warmed_up, small.start_seconds)
        return assign(parsed_spec(BIG, SMALL), (requirement,), {"small": capacity}).shares["big"].pod_seconds

    assert passed_on(small.pods + more) <= passed_on(small.pods) + 1e-6
