"""Price files: which rule fits, and what is said of one that is not right."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gpudask.cli.cost.prices import parse
from gpudask.cli.output import CliError, Exit

GOOD = {
    "currency": "EUR",
    "default": 2.5,
    "rules": [
        {"nodeSelector": {"gpu": "h200", "zone": "a"}, "perGpuHour": 5},
        {"nodeSelector": {"gpu": "h200"}, "perGpuHour": 4.2},
    ],
}


@pytest.mark.parametrize(
    ("nodes", "price"),
    [
        ({}, "2.5"),
        ({"gpu": "l4"}, "2.5"),
        ({"zone": "a"}, "2.5"),
        ({"gpu": "h200"}, "4.2"),
        ({"gpu": "h200", "zone": "b"}, "4.2"),
        ({"gpu": "h200", "zone": "a", "more": "x"}, "5"),
    ],
)
def test_the_first_rule_whose_labels_a_pool_asks_for_decides(nodes: dict[str, str], price: str):
    assert parse(GOOD, "prices.yaml").per_gpu_hour(nodes) == Decimal(price)


def test_without_a_default_nothing_is_the_price_of_what_no_rule_fits():
    assert parse({"currency": "EUR"}, "prices.yaml").per_gpu_hour({}) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"currency": None}, "currency: "),
        ({"currency": ""}, "currency: "),
        ({"currency": "E,U"}, "currency: "),
        ({"default": "much"}, "default: "),
        ({"default": -1}, "default: "),
        ({"default": float("nan")}, "default: "),
        ({"default": float("inf")}, "default: "),
        ({"rule": []}, "rule: "),
        ({"rules": {}}, "rules: "),
        ({"rules": [{"nodeSelector": {"a": "b"}}]}, "rules[0].perGpuHour: "),
        ({"rules": [{"nodeSelector": {}, "perGpuHour": 1}]}, "rules[0].nodeSelector: "),
        ({"rules": [*GOOD["rules"], {"nodeSelector": {"a": 1}, "perGpuHour": 1}]}, "rules[2].nodeSelector.a: "),  # type: ignore[misc]
        ({"rules": [{"nodeselector": {"a": "b"}, "perGpuHour": 1}]}, "rules[0].nodeselector: "),
    ],
)
def test_what_is_wrong_is_named_by_its_field(change: dict[str, Any], said: str):
    with pytest.raises(CliError) as error:
        parse(GOOD | change, "prices.yaml")
    assert error.value.code is Exit.USAGE
    assert str(error.value).startswith("prices.yaml: ")
    assert said in str(error.value)
    assert "Write for example {currency: EUR" in str(error.value)


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_what_is_no_price_file_is_told_with_an_example(document: Any):
    with pytest.raises(CliError, match=r"prices\.yaml holds no prices: write for example"):
        parse(document, "prices.yaml")
