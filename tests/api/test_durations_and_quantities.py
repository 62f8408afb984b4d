"""Durations and quantities, as Kubernetes writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.base import number, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("1m500ms", 60.5), ("0s", 0)],
)
def test_a_duration_in_seconds(text: str, expected: float):
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "60", "s", "1d", "-5s", "5 s", "1h 30m", "5sec", "1h30", ".5s", "\u0665s"])
def test_what_is_no_duration_is_refused_with_advice(text: str):
    with pytest.raises(ValueError, match="is not a duration: write a duration such as 30s, 5m or 1h30m"):
        seconds(text)


@given(st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, secs: int, millis: int):
    expected = hours * 3600 + minutes * 60 + secs + millis / 1000
    assert seconds(f"{hours}h{minutes}m{secs}s{millis}ms") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (4, 4),
        (0.5, 0.5),
        (200e9, 2e11),
        ("4", 4),
        ("0.5", 0.5),
        (".5", 0.5),
        ("5.", 5),
        ("+1", 1),
        ("500m", 0.5),
        ("1k", 1000),
        ("200G", 2e11),
        ("16Gi", 16 * 2**30),
        ("1.5Gi", 1.5 * 2**30),
        ("1Ei", 2**60),
        ("2E", 2e18),
        ("2e3", 2000),
        ("2E3", 2000),
        ("12e-1", 1.2),
        (0, 0),
    ],
)
def test_the_value_of_a_quantity(quantity: str | float, expected: float):
    assert number(quantity) == pytest.approx(expected)


@pytest.mark.parametrize(
    "quantity", ["", "16GB", "16gi", "1 Gi", "K", "1K", "--1", "1e", "0x10", "lots", "1Gi\n", "nan"]
)
def test_what_is_no_quantity_is_refused_with_advice(quantity: str):
    with pytest.raises(ValueError, match="is not a quantity: write a quantity such as 4, 500m, 16Gi or 200G"):
        number(quantity)


@pytest.mark.parametrize("quantity", ["1e400", "1e999999999"])
def test_a_quantity_beyond_all_bounds_is_refused(quantity: str):
    with pytest.raises(ValueError, match="is too large: write a quantity"):
        number(quantity)


def test_a_negative_quantity_is_refused():
    with pytest.raises(ValueError, match="'-1' is negative: write a quantity"):
        number("-1")


@given(st.integers(0, 10**6), st.sampled_from(["", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_units_scale_a_quantity(count: int, unit: str):
    assert number(f"{count}{unit}") == count * number(f"1{unit}")


@given(st.floats(0, 1e15, allow_nan=False))
def test_a_plain_number_is_its_own_quantity(value: float):
    assert number(value) == value
    assert number(repr(value)) == value
