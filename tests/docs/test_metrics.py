"""docs/metrics.md says what is exported: its tables are made from the code, and its names exist."""

from __future__ import annotations

import re

import pytest

from gpudask.metrics import reference
from gpudask.metrics.families import CLUSTER_FAMILIES, JOB_FAMILIES, OPERATOR_FAMILIES, POOL_KINDS, Family, Kind
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "metrics.md"
ALL = {family.name: family for family in (*CLUSTER_FAMILIES, *JOB_FAMILIES, *OPERATOR_FAMILIES)}


def test_the_tables_are_current():
    assert PAGE.read_text() == reference.page(PAGE.read_text()), "docs/metrics.md is old: make generate"


def test_a_page_without_the_place_of_a_table_is_an_error():
    with pytest.raises(ValueError, match="expected the place of the table clusters once, found it 0 times"):
        reference.page("# Metrics\n")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bgpudask_[a-z_]+", PAGE.read_text()))))
def test_every_name_on_the_page_is_exported(name: str):
    assert re.sub("_(bucket|count|sum)$", "", name) in ALL or name in ALL


def test_a_table_has_the_unit_and_the_values_that_are_known():
    family = Family("gpudask_x_gpu_seconds_total", Kind.COUNTER, "Help.", ("pool", "kind"), states=POOL_KINDS)
    assert reference.table([family]).splitlines()[-1] == (
        "| `gpudask_x_gpu_seconds_total` | counter | `pool`, `kind`: cpu, gpu | GPU-seconds | Help. |"
    )
