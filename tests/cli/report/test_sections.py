"""What the page says, section by section, of a cluster that ended, one that is there, and one that nobody knows of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.cli.commands.report import as_html
from gpudask.cli.cost.ledgers import merged, of_cluster
from gpudask.cli.cost.ledgers import of_record as ledger_of
from gpudask.cli.cost.prices import Prices
from gpudask.cli.report.record import parse
from gpudask.cli.report.sections import Page, Subject, page
from gpudask.cli.report.wording import duration, percent
from tests.cli.cost.builders import NOON, a_ledger, a_record, at
from tests.cli.report.builders import PRICES, SCRIPT, a_days_cluster, a_days_record, a_hostile_record, of_record


def the_page(body: Json, prices: Prices | None = None) -> Page:
    return page(Subject(*of_record(body)), NOON, prices)


DAY = the_page(a_days_record(), Prices.model_validate(PRICES))


def test_the_first_sentences_have_what_matters_most():
    assert DAY.headline == ("61% of 60.75 GPU-hours worked. The largest loss: spare, 6.10 GPU-hours (10%), 25.62 EUR.")


def test_without_a_loss_none_is_told_and_without_a_gpu_that():
    assert the_page(a_record(a_ledger(working=2))).headline == "100% of 2.00 GPU-hours worked."
    assert the_page(a_record()).headline == "No pod of it has held a GPU."


def test_the_tiles_are_the_sums():
    assert [(tile.label, tile.figure, tile.is_bad) for tile in DAY.tiles] == [
        ("GPU-hours held", "60.75", False),
        ("Share that worked", "61%", False),
        ("Cost of the GPUs", "174.32 EUR", False),
        ("Pods that ended badly", "2", True),
        ("Tasks that failed", "4", True),
    ]


def test_causes_come_in_the_ledgers_order_with_advice_where_it_pays():
    assert [(row.words, row.hours, row.share, bool(row.advice)) for row in DAY.causes] == [
        ("working", "37.00", "61%", False),
        ("unhealthy", "0.35", "1%", False),
        ("starting", "3.40", "6%", True),
        ("draining", "0.90", "1%", False),
        ("kept by a result", "3.10", "5%", True),
        ("kept by somebody", "4.00", "7%", True),
        ("spare", "6.10", "10%", True),
        ("in the idle timeout", "5.90", "10%", True),
    ]
    assert DAY.total is not None
    assert (DAY.total.hours, DAY.total.money) == ("60.75", "174.32 EUR")


def test_each_pools_bar_is_filled_by_its_causes():
    for bar in DAY.pool_bars:
        assert sum(part.width for part in bar.parts) == pytest.approx(100, abs=0.01)
        assert [part.begin for part in bar.parts] == sorted(part.begin for part in bar.parts)


def test_owners_share_what_worked_and_their_money_is_of_what_worked():
    assert [(bar.name, bar.figure, bar.note) for bar in DAY.owners] == [
        ("vision", "22.80 GPU-hours", "62% \N{MIDDLE DOT} 66.52 EUR"),
        ("speech", "8.10 GPU-hours", "22% \N{MIDDLE DOT} 20.25 EUR"),
        ("ada", "3.40 GPU-hours", "9% \N{MIDDLE DOT} 8.50 EUR"),
        ("without an owner", "2.70 GPU-hours", "7% \N{MIDDLE DOT} 6.75 EUR"),
    ]


def test_owners_behind_the_tenth_are_one_row():
    owners = {f"user-{number:02}": 1.0 for number in range(15)}
    bars = the_page(a_record(a_ledger("gpu", owners, working=15))).owners

    assert [bar.name for bar in bars[9:]] == ["user-09", "5 others"]
    assert bars[-1].figure == "5.00 GPU-hours"


def test_where_no_task_has_an_owner_there_is_no_such_section():
    assert the_page(a_record(a_ledger(working=2, spare=1))).owners == ()


def test_a_pool_with_gpus_has_a_chart_of_them():
    assert [(pool.pool, [chart.title.partition(" ")[0] for chart in pool.charts]) for pool in DAY.charts] == [
        ("cpu", ["Pods", "Tasks"]),
        ("gpu", ["GPUs", "Pods", "Tasks"]),
        ("big", ["GPUs", "Pods", "Tasks"]),
    ]
    assert DAY.charts[1].charts[0].words == (
        "GPUs of gpu, from 1 Dec 2026, 03:00:00 to 1 Dec 2026, 12:00:00 UTC: at most 9 held, at most 9 busy."
    )


def test_the_slowest_starts_come_first():
    assert (DAY.starts[0].name, DAY.starts[0].figure) == ("demo-big-worker-0", "6.0 min")
    widths = [bar.parts[0].width for bar in DAY.starts]
    assert (widths[0], widths) == (100, sorted(widths, reverse=True))
    assert len(widths) == 10


def test_what_held_gpus_idle_is_told_of_the_pods_that_were_idle_longest():
    assert (DAY.idle[0].figure, DAY.idle[0].note) == ("31.3 min idle", "mostly in the idle timeout, on node-2")
    assert all(part.kind != "working" for bar in DAY.idle for part in bar.parts)


def test_bad_ends_come_before_those_that_were_meant_and_the_last_one_first():
    assert [(row.reason, row.pods, row.codes, row.is_bad) for row in DAY.reasons] == [
        ("NodeLost", 1, "\N{EN DASH}", True),
        ("OOMKilled", 1, "137", True),
        ("Drained", 53, "0", False),
        ("Cancelled", 7, "0", False),
    ]
    assert [pod.reason for pod in DAY.bad_pods] == ["OOMKilled", "NodeLost"]
    assert DAY.bad_pods[0].log.endswith("Worker is at 96% memory usage. Pausing worker.")


def test_the_last_error_and_the_last_event_come_first():
    assert [error.key for error in DAY.errors] == ["embed-7f2c1a90b4", "read-tile-0091"]
    assert [event.reason for event in DAY.events][:2] == ["ScaledDown", "OutOfMemory"]


def test_a_cluster_that_is_there_has_its_pools_and_its_troubles_of_now():
    body, written = a_days_cluster(), a_days_record(ended=False)
    body["status"]["pools"].append({"name": "old", "removed": True, "pods": 0, "gpuSecondsHeld": 100.0})
    now = page(Subject(merged([of_cluster(body)], [ledger_of(written)])[0], body, parse(written)), NOON)

    assert [row[0] for row in now.now] == ["cpu", "gpu"]
    assert now.now[1][:5] == ("gpu", "3 of 3", "2 of 3", "5", "2")
    assert now.troubles == ("Degraded is True, PodsFailing: pod demo-gpu-worker-3 was killed",)
    assert now.state == "there since 1 Dec 2026, 03:00:00 UTC, for 9.0 h"


def test_without_a_record_the_status_is_told_and_that_there_is_no_more():
    body = a_days_cluster()
    alone = page(Subject(of_cluster(body), body), NOON)

    assert [row.words for row in alone.causes] == ["working", "kept by a result"]
    assert (alone.charts, alone.reasons, alone.tasks) == ((), (), ())
    assert "has no record" in alone.notes[0]


def test_shares_are_of_the_seconds_not_of_rounded_hours():
    body = a_days_cluster()

    assert [row.share for row in page(Subject(of_cluster(body), body), NOON).causes] == ["67%", "33%"]


def test_a_pool_without_a_price_is_told():
    prices = Prices.model_validate({"currency": "EUR", "rules": PRICES["rules"]})

    assert the_page(a_days_record(), prices).notes == ("Without a price, counted as 0: demo/gpu",)


def test_errors_are_told_also_where_no_task_was_counted():
    body = a_record(errors=[{"key": "embed-7f2c", "exception": "MemoryError()"}])

    assert "embed-7f2c" in as_html(Subject(*of_record(body)), NOON)


def test_no_markup_of_a_tenant_reaches_the_page():
    html = as_html(Subject(*of_record(a_hostile_record())), NOON)

    assert SCRIPT not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 100, "they are there, as text"
    assert "7*7" in html, "and nothing in it was taken for a template"
    assert "\x1b" not in html
    assert "\u202e" not in html


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just(at(-1)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every value in a record; of a list its first item alone."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return found + [each for key, item in inner for each in _paths(item, (*path, key))]


@given(st.sampled_from(_paths(a_days_record())), _ANYTHING)
def test_whatever_one_field_of_a_record_has_there_is_a_page(path: tuple[str | int, ...], junk: Any):
    body = a_days_record()
    place: Any = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = junk

    assert "</html>" in as_html(Subject(*of_record(body)), NOON)


@pytest.mark.parametrize("reason", ["", None, 5])
def test_an_end_without_a_reason_is_told_as_such(reason: Any):
    body = a_record(a_ledger(working=1), pods=[{"pod": "p", "pool": "gpu", "reason": reason}])

    assert [(row.reason, row.is_bad) for row in the_page(body).reasons] == [("not told", True)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (12.4, "12 s"), (119, "119 s"), (210, "3.5 min"), (7560, "2.1 h"), (3e5, "3.5 d")],
)
def test_durations_have_one_unit(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.999, ">99%"), (1, "100%")])
def test_little_is_not_nothing_and_nearly_all_is_not_all(share: float, text: str):
    assert percent(share) == text
