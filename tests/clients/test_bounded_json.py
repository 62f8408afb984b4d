"""JSON of a peer that is not trusted: read, or refused for little."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.clients.scheduler import BadJsonError, parse_json

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(alphabet='[]{}"\\,:a\u202e', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"\\a', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(anything, st.booleans())
def test_what_is_within_bounds_is_read_as_json_is(value: Any, ascii_only: bool):
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode(), values=1_000) == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 17 + b"]" * 17, "16 deep"),
        (b'{"a":' * 17 + b"1" + b"}" * 17, "16 deep"),
        (b"[" * 100_000, "values"),
        (b"[" * 900, "16 deep"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b"1" * 5_000, "expected JSON"),
        (b"[1,", "16 deep"),
        (b"<html>", "expected JSON"),
        (b"", "expected JSON"),
        (b'"\xff"', "expected JSON"),
        ('"utf-16"'.encode("utf-16"), "expected JSON"),
        (b'"a\nb"', "expected JSON"),
        (b"[" + b"1," * 2_000 + b"1]", "at most 1000 values"),
    ],
)
def test_what_is_not_is_refused_in_few_words(body: bytes, words: str):
    with pytest.raises(BadJsonError, match=words) as caught:
        parse_json(body, values=1_000)
    assert len(str(caught.value)) < 100


def test_sixteen_deep_is_read_and_of_a_key_that_comes_twice_the_last_one_counts():
    parse_json(b"[" * 16 + b"]" * 16, values=1_000)
    assert parse_json(b'{"a": 1, "a": 2}', values=1_000) == {"a": 2}


MEGABYTES = 5_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * MEGABYTES,
        b'["' + b"[" * MEGABYTES,
        b'"' * MEGABYTES,
        b"\\" * MEGABYTES,
        b'"' + b"\\u202e" * (MEGABYTES // 6) + b'"',
        b"[" + b"0." + b"1" * MEGABYTES + b"]",
        b"[1e" + b"9" * MEGABYTES + b"]",
        b"9" * MEGABYTES,
        b"[" + b"{}," * (MEGABYTES // 3) + b"{}]",
        b"[" + b"1e5,".ljust(25) * (MEGABYTES // 25) + b"1]",
    ],
    ids=range(10),
)
def test_megabytes_cost_less_than_a_moment(body: bytes):
    began = time.process_time()
    with contextlib.suppress(BadJsonError):
        parse_json(body, values=200_000)
    assert time.process_time() - began < 1.0
