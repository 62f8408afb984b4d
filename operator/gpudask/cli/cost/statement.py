"""The statement: GPU-hours and money of ledgers, grouped, rounded so that the rows add up to the total.

    worked(row) = sum of the GPU-seconds whose cause is `working`
    idle(row)   = sum of the GPU-seconds of every other cause
    money       = GPU-seconds / 3600 * price of the pool

Each column of worked and of idle is rounded by itself to its step (0.01 hours, 0.01 money): the total first, half to
even, then the rows down, and what is missing to the total goes to those that lost most. So a row is off by less than
one step, every grouping has the same total, and the rows add up to it. Held is worked plus idle, after rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

from gpudask.cli.cost.causes import WORKING, rank
from gpudask.cli.cost.ledgers import ClusterLedger, PoolLedger

if TYPE_CHECKING:
    from gpudask.cli.cost.prices import Prices

STEP = Decimal("0.01")
NONE = ""
"""The key of what has no such label, and of tasks without an owner."""
IDLE = "(idle)"
"""The owner of GPUs that did not work: nobody's tasks were on them."""
_HOUR = Decimal(3600)
DIMENSIONS = ("namespace", "cluster", "pool", "cause", "owner")
"""What rows may be grouped by, beside the name of any label."""


@dataclass(frozen=True)
class Charge:
    """The smallest part of a statement: one pool's GPU-seconds of one cause and owner.

    `per_gpu_hour` is the price of one GPU for an hour, None where nobody says it.
    """

    cluster: ClusterLedger
    pool: str
    cause: str
    owner: str
    gpu_seconds: float
    per_gpu_hour: Decimal | None

    def key(self, dimension: str) -> str:
        """Its key in a dimension: one of DIMENSIONS, or a label's name."""
        known = {
            "namespace": self.cluster.namespace,
            "cluster": self.cluster.name,
            "pool": self.pool,
            "cause": self.cause,
            "owner": self.owner,
        }
        return known[dimension] if dimension in known else self.cluster.labels.get(dimension, NONE)


@dataclass(frozen=True)
class Row:
    """One row, rounded, but for `gpu_seconds`. Hours are GPU-hours; money is None without prices, 0 where none fits."""

    keys: tuple[str, ...]
    hours_worked: Decimal
    hours_idle: Decimal
    money_worked: Decimal | None
    money_idle: Decimal | None
    gpu_seconds: float
    share: float
    """What worked of what was held, 0 to 1, before rounding."""

    @property
    def hours(self) -> Decimal:
        """GPU-hours held."""
        return self.hours_worked + self.hours_idle

    @property
    def money(self) -> Decimal | None:
        """The price of all that was held."""
        if self.money_worked is None or self.money_idle is None:
            return None
        return self.money_worked + self.money_idle


@dataclass(frozen=True)
class Statement:
    """The rows, and their total. `unpriced`: the pools without a price, as `cluster/pool`."""

    by: tuple[str, ...]
    rows: tuple[Row, ...]
    total: Row
    currency: str = ""
    unpriced: tuple[str, ...] = ()


def statement(ledgers: Iterable[ClusterLedger], by: Sequence[str], prices: Prices | None = None) -> Statement:
    """The statement of `ledgers`, a row for each combination of keys in the dimensions `by`."""
    charges = [charge for ledger in ledgers for charge in _charges(ledger, prices)]
    groups: dict[tuple[str, ...], list[Charge]] = {}
    for charge in charges:
        groups.setdefault(tuple(charge.key(dimension) for dimension in by), []).append(charge)
    ordered = sorted(groups, key=lambda keys: _order(by, keys, groups[keys]))
    rows = _rows([groups[keys] for keys in ordered], ordered, with_money=prices is not None)
    unpriced = {f"{charge.cluster.name}/{charge.pool}" for charge in charges if charge.per_gpu_hour is None}
    return Statement(
        tuple(by),
        tuple(rows),
        _total(rows, charges),
        currency=prices.currency if prices else "",
        unpriced=tuple(sorted(unpriced)) if prices else (),
    )


def apportion(values: Sequence[Decimal], step: Decimal = STEP) -> list[Decimal]:
    """`values`, none negative, rounded to multiples of `step` that add up to their sum, itself rounded to one.

    Each is off by less than one step. https://en.wikipedia.org/wiki/Largest_remainder_method
    """
    units = [value / step for value in values]
    floors = [unit.to_integral_value(ROUND_FLOOR) for unit in units]
    missing = int(sum(units, Decimal()).to_integral_value(ROUND_HALF_EVEN) - sum(floors, Decimal()))
    most_lost = sorted(range(len(units)), key=lambda index: (floors[index] - units[index], index))
    for index in most_lost[:missing]:
        floors[index] += 1
    return [floor * step for floor in floors]


def _charges(ledger: ClusterLedger, prices: Prices | None) -> list[Charge]:
    found = []
    for pool in ledger.pools:
        price = prices.per_gpu_hour(pool.node_selector) if prices else None
        found += [
            Charge(ledger, pool.name, cause, owner, seconds, price) for cause, owner, seconds in _parts(pool) if seconds
        ]
    return found


def _parts(pool: PoolLedger) -> list[tuple[str, str, float]]:
    # Whoever calls their tasks' owner so shall not pass their hours off as nobody's.
    worked = [(WORKING, f"'{IDLE}'" if owner == IDLE else owner, seconds) for owner, seconds in pool.owned().items()]
    return worked + [(cause, IDLE, seconds) for cause, seconds in pool.causes.items() if cause != WORKING]


def _order(by: Sequence[str], keys: tuple[str, ...], charges: list[Charge]) -> tuple[object, ...]:
    """Causes in the ledger's order, else the largest first, so that what matters is on top."""
    if tuple(by) == ("cause",):
        return (rank(keys[0]), keys)
    return (-_seconds(charges), keys)


def _rows(groups: list[list[Charge]], keys: list[tuple[str, ...]], *, with_money: bool) -> list[Row]:
    def column(value: Callable[[Charge], Decimal], *, worked: bool) -> list[Decimal]:
        sums = [sum((value(c) for c in group if (c.cause == WORKING) == worked), Decimal()) for group in groups]
        return apportion(sums)

    hours = [column(_hours, worked=worked) for worked in (True, False)]
    money = [column(_price, worked=worked) if with_money else [None] * len(groups) for worked in (True, False)]
    return [
        Row(
            keys[index],
            hours[0][index],
            hours[1][index],
            money[0][index],
            money[1][index],
            _seconds(group),
            _share(group),
        )
        for index, group in enumerate(groups)
    ]


def _total(rows: list[Row], charges: list[Charge]) -> Row:
    def add(values: Iterable[Decimal | None]) -> Decimal:
        return sum((value for value in values if value is not None), Decimal())

    has_money = bool(rows) and rows[0].money is not None
    return Row(
        (),
        add(row.hours_worked for row in rows),
        add(row.hours_idle for row in rows),
        add(row.money_worked for row in rows) if has_money else None,
        add(row.money_idle for row in rows) if has_money else None,
        _seconds(charges),
        _share(charges),
    )


def _hours(charge: Charge) -> Decimal:
    return Decimal(repr(charge.gpu_seconds)) / _HOUR


def _price(charge: Charge) -> Decimal:
    return _hours(charge) * (charge.per_gpu_hour or Decimal())


def _seconds(charges: Iterable[Charge]) -> float:
    return math.fsum(charge.gpu_seconds for charge in charges)


def _share(charges: Sequence[Charge]) -> float:
    held = _seconds(charges)
    return min(1.0, _seconds(charge for charge in charges if charge.cause == WORKING) / held) if held else 0.0


def as_json(made: Statement) -> list[dict[str, object]]:
    """The rows for programs, under the names of the dimensions and of the columns."""
    return [dict(zip(made.by, row.keys, strict=True)) | figures(row) for row in made.rows]


def figures(row: Row) -> dict[str, object]:
    """The figures of a row for programs."""
    return {
        "gpuHours": float(row.hours),
        "gpuHoursWorked": float(row.hours_worked),
        "gpuHoursIdle": float(row.hours_idle),
        "worked": round(row.share, 4),
        "money": None if row.money is None else float(row.money),
        "moneyIdle": None if row.money_idle is None else float(row.money_idle),
    }


def labels(by: Sequence[str], ledgers: Iterable[ClusterLedger]) -> Mapping[str, bool]:
    """Of each dimension that is a label: whether any cluster has it. One that none has is probably misspelt."""
    found = list(ledgers)
    return {each: any(each in ledger.labels for ledger in found) for each in by if each not in DIMENSIONS}
