"""The statement's arithmetic: tables of ledgers and prices, and sums that agree whatever the rows are grouped by."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.cli.cost.ledgers import ClusterLedger, PoolLedger
from gpudask.cli.cost.prices import Prices
from gpudask.cli.cost.statement import DIMENSIONS, IDLE, apportion, statement
from tests.cli.cost.builders import HOUR

PRICES = Prices.model_validate(
    {"currency": "EUR", "default": 2, "rules": [{"nodeSelector": {"gpu": "h200"}, "perGpuHour": 4}]}
)


def a_pool(
    name: str = "gpu",
    owners: dict[str, float] | None = None,
    nodes: dict[str, str] | None = None,
    **causes: float,
) -> PoolLedger:
    """GPU-hours by cause."""
    return PoolLedger(
        name,
        {cause: hours * HOUR for cause, hours in causes.items()},
        {owner: hours * HOUR for owner, hours in (owners or {}).items()},
        nodes or {},
    )


def a_ledger(name: str, *pools: PoolLedger, **labels: str) -> ClusterLedger:
    return ClusterLedger("lab", name, f"uid-of-{name}", pools, labels)


LEDGERS = [
    a_ledger(
        "a", a_pool("gpu", {"ada": 2, "": 1}, working=3, spare=1), a_pool("big", nodes={"gpu": "h200"}, working=1)
    ),
    a_ledger("b", a_pool("gpu", {"bob": 1}, working=1, starting=3), team="vision"),
]


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        (["cluster"], {("a",): (5, 4, 12, 2), ("b",): (4, 1, 8, 6)}),
        (["pool"], {("gpu",): (8, 4, 16, 8), ("big",): (1, 1, 4, 0)}),
        (["cause"], {("working",): (5, 5, 12, 0), ("starting",): (3, 0, 6, 6), ("spare",): (1, 0, 2, 2)}),
        (["team"], {("",): (5, 4, 12, 2), ("vision",): (4, 1, 8, 6)}),
        (["owner"], {("ada",): (2, 2, 4, 0), ("",): (2, 2, 6, 0), ("bob",): (1, 1, 2, 0), (IDLE,): (4, 0, 8, 8)}),
        (
            ["team", "cause"],
            {("", "working"): (4, 4, 10, 0), ("", "spare"): (1, 0, 2, 2)}
            | {("vision", "working"): (1, 1, 2, 0), ("vision", "starting"): (3, 0, 6, 6)},
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_hours_and_money_by_what_one_asks_for(by: list[str], rows: dict[tuple[str, ...], tuple[int, ...]]):
    made = statement(LEDGERS, by, PRICES)

    assert {row.keys: (row.hours, row.hours_worked, row.money, row.money_idle) for row in made.rows} == rows


def test_nobody_passes_their_hours_off_as_idle():
    made = statement([a_ledger("a", a_pool("gpu", {IDLE: 3}, working=3, spare=1))], ["owner"])

    assert {row.keys[0]: (row.hours, row.share) for row in made.rows} == {f"'{IDLE}'": (3, 1), IDLE: (1, 0)}


def test_the_total_is_of_all_and_the_share_is_of_hours():
    total = statement(LEDGERS, ["cluster"], PRICES).total

    assert (total.hours, total.money, total.money_idle) == (9, 20, 8)
    assert total.share == pytest.approx(5 / 9)


def test_causes_come_in_the_ledgers_order_and_everything_else_with_the_largest_first():
    ledger = a_ledger("a", a_pool(spare=5, newer=9, working=1), a_pool("big", spare=9))

    assert [row.keys for row in statement([ledger], ["cause"]).rows] == [("working",), ("spare",), ("newer",)]
    assert [row.keys for row in statement([ledger], ["pool"]).rows] == [("gpu",), ("big",)]


def test_without_prices_there_is_no_money_and_where_none_fits_that_is_told():
    without = statement(LEDGERS, ["cluster"])
    partial = statement(LEDGERS, ["cluster"], PRICES.model_copy(update={"default": None}))

    assert (without.total.money, without.unpriced) == (None, ())
    assert (partial.total.money, partial.unpriced) == (4, ("a/gpu", "b/gpu"))


def test_nothing_held_is_nothing():
    made = statement([a_ledger("a")], ["cluster"], PRICES)

    assert (made.rows, made.total.hours, made.total.share) == ((), 0, 0)


@pytest.mark.parametrize(
    ("values", "rounded"),
    [
        ([], []),
        (["0.004"], ["0.00"]),
        (["0.005"], ["0.00"]),
        (["0.015"], ["0.02"]),
        (["0.333", "0.333", "0.334"], ["0.33", "0.33", "0.34"]),
        (["0.005", "0.005"], ["0.01", "0.00"]),
        (["0.006", "0.006", "0.006"], ["0.01", "0.01", "0.00"]),
        (["1000000.004", "0.004", "0.004"], ["1000000.01", "0.00", "0.00"]),
    ],
)
def test_rows_are_rounded_so_that_they_add_up(values: list[str], rounded: list[str]):
    assert [str(value) for value in apportion([Decimal(value) for value in values])] == rounded


_AMOUNTS = st.floats(min_value=0, max_value=1e9)


@given(st.lists(_AMOUNTS.map(lambda value: Decimal(repr(value))), max_size=30))
def test_no_row_is_off_by_a_step_and_the_sum_is_the_rounded_sum(values: list[Decimal]):
    rounded = apportion(values)

    assert all(abs(after - before) < Decimal("0.01") for before, after in zip(values, rounded, strict=True))
    assert abs(sum(rounded) - sum(values)) <= Decimal("0.005")


_POOLS = st.builds(
    PoolLedger,
    st.sampled_from(["gpu", "big"]),
    st.dictionaries(st.sampled_from(["working", "spare", "draining", "new"]), _AMOUNTS),
    st.dictionaries(st.sampled_from(["", "ada", "bob"]), _AMOUNTS),
)
_LEDGERS = st.lists(
    st.builds(
        lambda name, pools, team: a_ledger(name, *pools, team=team),
        st.sampled_from("ab"),
        st.lists(_POOLS, max_size=3),
        st.sampled_from(["x", "y"]),
    ),
    max_size=4,
)
_GROUPINGS = list(chain.from_iterable(combinations((*DIMENSIONS, "team"), size) for size in (1, 2, 3)))


@given(_LEDGERS)
def test_every_grouping_has_the_same_total_and_rows_that_add_up_to_it(ledgers: list[ClusterLedger]):
    totals = set()
    for by in _GROUPINGS:
        made = statement(ledgers, by, PRICES)
        totals.add((made.total.hours_worked, made.total.hours_idle, made.total.money or 0))
        assert sum(row.hours for row in made.rows) == made.total.hours
        assert sum(row.money or 0 for row in made.rows) == (made.total.money or 0)
        assert all((row.money_idle or 0) <= (row.money or 0) for row in made.rows)
    worked, idle, money = (max(column) - min(column) for column in zip(*totals, strict=True))
    # Owners' shares are floats: at the middle between two steps a sum may fall to either side.
    assert (worked <= Decimal("0.01"), idle <= Decimal("0.01"), money <= Decimal("0.02")) == (True, True, True)
