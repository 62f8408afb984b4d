"""JSON that is nested too deep is cut, and what stands beside it is read."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.clients import nesting
from gpudask.clients.nesting import loads

DEEP = 5000


def deep_list(levels: int) -> str:
    return "[" * levels + "]" * levels


def deep_object(levels: int) -> str:
    return '{"a":' * levels + '"}\\"]"' + "}" * levels


@pytest.mark.parametrize("deep", [deep_list(DEEP), deep_object(DEEP)], ids=["lists", "objects"])
def test_an_object_that_is_nested_deep_costs_no_other(deep: str):
    page = f'{{"items": [{{"name": "a", "x": {deep}}}, {{"name": "b ]}}{{ \\" é"}}], "metadata": {{"n": 1}}}}'
    found = loads(page.encode())
    assert [item["name"] for item in found["items"]] == ["a", 'b ]}{ " é']
    assert found["metadata"] == {"n": 1}
    json.dumps(found)  # no deeper than the writer goes


def test_what_python_reads_is_as_it_was():
    text = deep_list(nesting._DEEPEST + 50)
    assert loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize("digits", [21, 5000])
def test_a_number_of_many_digits_costs_no_other(digits: int):
    found: Any = loads(f'{{"a": {"9" * digits}, "b": [{"1" * 5000}], "c": 1}}'.encode())
    assert found["c"] == 1


@pytest.mark.parametrize("text", ["", "{", "[1,]", "]" * DEEP, "[" * DEEP, '"', "[" * DEEP + "}" * DEEP])
def test_what_is_no_json_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        loads(text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40)
@given(value=JSON)
def test_whatever_stands_beside_the_deep_is_kept(value: Any):
    cut = b"".join(nesting._cut(json.dumps([value, "DEEP"]).replace('"DEEP"', deep_list(200)).encode()))
    assert json.loads(cut)[0] == value


@given(text=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_no_json(text: bytes):
    with contextlib.suppress(ValueError):
        loads(text)


def test_a_large_page_is_cut_in_a_moment():
    page = b'{"a": "' + b"x" * 5_000_000 + b'", "b": ' + deep_list(200_000).encode() + b"}"
    began = time.process_time()
    assert len(loads(page)["a"]) == 5_000_000
    assert time.process_time() - began < 5
