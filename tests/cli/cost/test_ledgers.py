"""Ledgers as they are read: each cluster once, cut to a window, and whatever somebody wrote into status or record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.cli.cost.ledgers import ClusterLedger, Window, merged, of_cluster, of_record, since
from gpudask.cli.cost.statement import statement
from tests.cli.cost.builders import HOUR, NOON, a_cluster, a_ledger, a_record, a_sample


def hours(ledger: ClusterLedger) -> dict[str, float]:
    """GPU-hours by cause, of all pools."""
    sums: dict[str, float] = {}
    for pool in ledger.pools:
        for cause, seconds in pool.causes.items():
            sums[cause] = round(sums.get(cause, 0.0) + seconds / HOUR, 6)
    return sums


def test_a_cluster_that_both_sources_have_counts_once_with_the_counters_that_are_further_along():
    alive = of_cluster(a_cluster(a_ledger("gpu", working=5), a_ledger("big", working=1)))
    written = a_record(a_ledger("gpu", working=4, spare=0.5), a_ledger("gone", spare=2), name="demo", ended=None)
    (both,) = merged([alive], [of_record(written)])

    assert {pool.name: pool.held / HOUR for pool in both.pools} == {"gpu": 5, "big": 1, "gone": 2}
    assert both.ended is None


def test_a_record_that_says_that_a_cluster_ended_is_not_believed_while_the_cluster_is_there():
    (both,) = merged([of_cluster(a_cluster(a_ledger(working=5)))], [of_record(a_record(name="demo", ended=-5))])

    assert both.ended is None
    assert since(both, NOON - HOUR, NOON)[1] is not Window.OUTSIDE


def test_removed_pools_without_a_row_of_their_own_count_once_whichever_has_them():
    def held(status: dict[str, float], record: dict[str, float]) -> dict[str, float]:
        rows = [[a_ledger(name, draining=hours) for name, hours in each.items()] for each in (status, record)]
        (both,) = merged([of_cluster(a_cluster(*rows[0]))], [of_record(a_record(*rows[1], name="demo"))])
        return {pool.name: pool.held / 3600 for pool in both.pools}

    assert held({"gpu": 1, "": 5}, {"gpu": 1, "p0": 3, "p1": 2}) == {"gpu": 1, "p0": 3, "p1": 2}
    assert held({"gpu": 2, "": 5}, {"gpu": 1, "p1": 2}) == {"gpu": 2, "p1": 2, "": 3}
    assert held({"p0": 1, "": 3}, {"p0": 4}) == {"p0": 4}, "it came back"
    assert held({"gpu": 1, "": 5}, {"gpu": 1, "p1": 2, "": 3}) == {"gpu": 1, "p1": 2, "": 3}


def test_two_clusters_of_one_name_are_two():
    alive = of_cluster(a_cluster(a_ledger(working=5), uid="another"))

    assert [item.uid for item in merged([alive], [of_record(a_record(a_ledger(working=1), name="demo"))])] == [
        "another",
        "uid-of-demo",
    ]


def test_a_record_without_a_uid_could_count_a_cluster_twice_and_is_left_out():
    assert merged([], [of_record(a_record(a_ledger(working=1), cluster={"uid": None}))]) == []


def test_labels_count_before_annotations_and_the_records_attribution_last():
    body = a_cluster(a_ledger(working=1), labels={"team": "vision"}, annotations={"team": "x", "project": "p"})
    written = of_record(a_record(name="demo", cluster={"attribution": {"team": "y", "user": "ada"}}))

    assert merged([of_cluster(body)], [written])[0].labels == {"team": "vision", "project": "p", "user": "ada"}


def test_the_nodes_of_a_pool_are_those_that_its_pods_ask_for():
    body = a_cluster(a_ledger(working=1))
    body["spec"]["template"] = {"spec": {"nodeSelector": {"zone": "a", "kind": "any"}}}
    body["spec"]["pools"][0] |= {
        "gpu": {"nodeSelector": {"gpu": "h200"}},
        "template": {"spec": {"nodeSelector": {"kind": "big"}}},
    }

    assert of_cluster(body).pools[0].node_selector == {"zone": "a", "kind": "big", "gpu": "h200"}


def test_an_operator_without_causes_told_what_worked():
    pool = {"name": "gpu", "gpuSecondsHeld": 100.0, "gpuSecondsUsed": 60.0}

    assert of_cluster(a_cluster(pool)).pools[0].causes == {"working": 60.0, "unknown": 40.0}


@pytest.mark.parametrize(
    ("owners", "owned"),
    [
        ({}, {"": 4}),
        ({"a": 1, "": 3}, {"a": 1, "": 3}),
        ({"a": 1}, {"a": 1, "": 3}),
        ({"a": 6, "b": 2}, {"a": 3, "b": 1, "": 0}),
    ],
    ids=["nobody", "all", "some", "more than worked"],
)
def test_owners_share_what_worked_and_nothing_else(owners: dict[str, float], owned: dict[str, float]):
    (pool,) = of_cluster(a_cluster(a_ledger("gpu", owners, working=4, spare=2))).pools

    assert {owner: seconds / HOUR for owner, seconds in pool.owned().items()} == pytest.approx(owned)


# From -10 h: two GPUs held, one of them busy; from -4 h one, busy; it ended at -1 h. Idle: 6 h. Busy: 6 + 3 h.
SAMPLES = [a_sample(-10, 2, 1), a_sample(-4, 1, 1)]


@pytest.mark.parametrize(
    ("start", "window", "left"),
    [
        (-11, Window.WHOLE, {"working": 9, "spare": 4, "starting": 2}),
        (-10, Window.WHOLE, {"working": 9, "spare": 4, "starting": 2}),
        (-7, Window.ESTIMATED, {"working": 6, "spare": 2, "starting": 1}),
        (-4, Window.ESTIMATED, {"working": 3, "spare": 0, "starting": 0}),
        (-1, Window.OUTSIDE, {}),
        (0, Window.OUTSIDE, {}),
    ],
)
def test_a_window_cuts_what_worked_as_the_busy_gpus_and_the_rest_as_the_idle_ones(
    start: float, window: Window, left: dict[str, float]
):
    ledger = of_record(a_record(a_ledger("gpu", {"a": 9}, working=9, spare=4, starting=2), samples=SAMPLES))
    cut, found = since(ledger, NOON + start * HOUR, NOON)

    assert found is window
    assert hours(cut) == left
    assert sum(pool.owned()["a"] for pool in cut.pools) / HOUR == pytest.approx(left.get("working", 0))


def test_the_last_sample_of_a_cluster_that_is_there_holds_until_now():
    ledger = of_record(a_record(a_ledger(working=4), ended=None, samples=[a_sample(-8, 1, 1), a_sample(-6, 0, 0)]))
    later = of_record(a_record(a_ledger(working=4), ended=None, samples=[a_sample(-8, 1, 1), a_sample(-6, 1, 1)]))

    assert hours(since(ledger, NOON - 4 * HOUR, NOON)[0]) == {"working": 0}
    assert hours(since(later, NOON - 4 * HOUR, NOON)[0]) == {"working": 2}


@pytest.mark.parametrize(
    "samples",
    [[], [a_sample(-8, 2, 2, pool="other")], [a_sample(-8, 0, 0)], [a_sample(-8, 2, 2)]],
    ids=["none", "another pool's", "of no GPU", "of no idle one"],
)
def test_what_the_samples_do_not_have_is_counted_whole_and_that_is_told(samples: list[Json]):
    ledger = of_record(a_record(a_ledger(working=4, spare=2), samples=samples))
    cut, found = since(ledger, NOON - 2 * HOUR, NOON)

    assert found is Window.UNCUT
    assert hours(cut)["spare"] == 2


@pytest.mark.parametrize(
    "junk",
    [None, 3, "x", [], [None, 1, "a", []], {"a": 1}, [{"cause": 3, "gpuSeconds": "9"}], [{"gpuSeconds": float("nan")}]],
    ids=repr,
)
@pytest.mark.parametrize("field", ["causes", "owners", "nodeSelector", "name"])
def test_junk_in_a_pool_hides_no_other_pool(field: str, junk: Any):
    pools = [a_ledger("bad", working=1) | {field: junk}, a_ledger("good", {"a": 2}, working=2)]

    for ledger in (of_cluster(a_cluster(*pools)), of_record(a_record(*pools))):
        assert {pool.name: pool.owned() for pool in ledger.pools}["good"] == {"a": 2 * HOUR, "": 0}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "record", "status", "spec", "pools", "causes", "owners", "cause", "owner", "name"]
            )
            | st.sampled_from(["gpuSeconds", "uid", "cluster", "samples", "at", "gpusHeld", "gpusBusy", "labels"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=40,
)


@given(_JSON, _JSON)
def test_whatever_is_written_there_a_statement_comes_of_it(cluster: Any, record: Any):
    found = merged([of_cluster(cluster)], [of_record(record)])
    cut = [since(ledger, NOON, NOON + HOUR)[0] for ledger in found]
    made = statement(cut, ["cluster", "cause"])

    assert made.total.hours >= 0
    assert 0 <= made.total.share <= 1
