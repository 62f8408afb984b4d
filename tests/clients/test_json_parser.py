"""JSON of any depth is read, or refused as no JSON is: never with a RecursionError."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.clients import json_parser
from gpudask.clients.transport import _answer

DEEP = 5_000


def text_of(depth: int, *, lists: bool = False) -> bytes:
    return (b"[" if lists else b'{"a":') * depth + b"1" + (b"]" if lists else b"}") * depth


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, dict | list) and value:
        depth, value = depth + 1, next(iter(value.values() if isinstance(value, dict) else value))
    return depth


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("depth", [2_000, 9_999, 100_000])
def test_as_deep_as_the_api_server_takes_it_is_cut(depth: int, lists: bool):
    text = text_of(depth, lists=lists)
    with pytest.raises(RecursionError):
        json.loads(text)
    assert depth_of(json_parser.loads(text)) == json_parser.MAX_DEPTH
    assert depth_of(json_parser.loads_shallow(text)) == json_parser.MAX_DEPTH
    assert depth_of(json.loads(json_parser.shallow(text))) == json_parser.MAX_DEPTH


@pytest.mark.parametrize("read", [json_parser.loads, json_parser.loads_shallow, json_parser.shallow])
@pytest.mark.parametrize("text", ["{" * 101, "[" * DEEP, "[" * DEEP + "}" * DEEP, "[" * 200 + "no JSON"])
def test_what_is_no_json_is_refused_however_deep(read: Any, text: str):
    with pytest.raises(ValueError, match=r".+"):
        read(text.encode())


@pytest.mark.parametrize("text", ["", "{", "[1,]", "]" * DEEP, '"'])
def test_what_is_no_json_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        json_parser.loads(text.encode())


def test_what_is_not_deep_stays_as_it_is():
    wide = json.dumps([{"a": [{"b": {}}]}] * 1000).encode()
    assert (
        json_parser.loads(wide)
        == json_parser.loads_shallow(wide)
        == json.loads(json_parser.shallow(wide))
        == json.loads(wide)
    )
    little = b'{"a": 1 }'
    assert json_parser.shallow(little) is little


@pytest.mark.parametrize(
    "inner",
    [b"{}," * 1000, b'"[",' * 1000, b'"\\"{[",' * 1000, b'"\\\\",[],"{",' * 1000, b"[" * 98 + b"]" * 98 + b","],
    ids=["objects", "brackets in strings", "escaped quotes", "escaped backslashes", "as deep as may be"],
)
def test_what_is_not_deep_is_the_very_same_text(inner: bytes):
    text = b'{"x": [' + b"{}," * 200 + inner + b" 1]}"
    assert json_parser.shallow(text) is text  # so nothing was parsed, nor written again
    assert json_parser.loads_shallow(text) == json.loads(text)


def test_only_what_is_deep_is_written_anew():
    text = b'{"a": 1.50, "x": [' + b"{}, " * 200 + b"[" * 98 + b'"]", ' + b"[]" + b"]" * 98 + b', {"b" : 2}]}'
    assert json_parser.shallow(text) == text.replace(b"[]]", b"null]")


def run_lines(work: Any) -> int:
    """The lines and functions of Python that `work` runs."""
    counted = 0

    def trace(_frame: Any, event: str, _value: Any) -> Any:
        nonlocal counted
        counted += event in ("line", "call")
        return trace

    before = sys.gettrace()
    gc.disable()  # others may have told it to call functions of theirs
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return counted


@pytest.mark.parametrize("deep", [b"", b"[" * 150 + b"]" * 150 + b","], ids=["not deep", "deep"])
@pytest.mark.parametrize("part", [b"{},", b'"{",', b'"\\"",', b"[" * 97 + b"[[]]" + b"]" * 97 + b","])
@pytest.mark.parametrize("read", [json_parser.loads_shallow, json_parser.shallow])
def test_brackets_and_strings_take_no_python(read: Any, part: bytes, deep: bytes):
    few, many = (b'{"x": [' + b"{}," * 101 + deep + part * n + b"1]}" for n in (10, 2_000))
    assert run_lines(lambda: read(many)) == run_lines(lambda: read(few))


@pytest.mark.parametrize("read", [json_parser.loads_shallow, json_parser.shallow])
def test_half_of_a_large_document_is_refused(read: Any):
    with pytest.raises(ValueError, match=r".+"):
        read(b'{"x": [' + b"{}," * 1000 + b'"a')


def test_half_of_a_document_is_refused_in_a_moment():
    half = b"[" * 200 + b'"' + b'\\"' * 500_000  # a string without its end: each quote in it may begin one
    began = time.process_time()
    with pytest.raises(ValueError, match=r".+"):
        json_parser.shallow(half)
    assert time.process_time() - began < 5


def test_what_lies_beside_the_deep_stays():
    body = json.loads(json_parser.shallow(b'{"metadata": {"uid": "u"}, "spec": ' + text_of(5_000) + b"}"))
    assert body["metadata"] == {"uid": "u"}


def test_an_answer_with_a_deep_object_is_read():
    text = b'{"metadata": {"uid": "u"}, "spec": ' + text_of(9_000) + b"}"
    assert _answer(SimpleNamespace(status=200, headers={}), text, "GET /x")["metadata"]["uid"] == "u"


def deep_list(levels: int) -> str:
    return "[" * levels + "]" * levels


def deep_object(levels: int) -> str:
    return '{"a":' * levels + '"}\\"]"' + "}" * levels


@pytest.mark.parametrize("deep", [deep_list(DEEP), deep_object(DEEP)], ids=["lists", "objects"])
def test_an_object_that_is_nested_deep_costs_no_other(deep: str):
    page = f'{{"items": [{{"name": "a", "x": {deep}}}, {{"name": "b ]}}{{ \\" é"}}], "metadata": {{"n": 1}}}}'
    found = json_parser.loads(page.encode())
    assert [item["name"] for item in found["items"]] == ["a", 'b ]}{ " é']
    assert found["metadata"] == {"n": 1}
    json.dumps(found)  # no deeper than the writer goes


def test_what_python_reads_is_as_it_was():
    text = deep_list(json_parser.MAX_DEPTH + 50)
    assert json_parser.loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize("digits", [21, 5000])
def test_a_number_of_many_digits_costs_no_other(digits: int):
    found: Any = json_parser.loads(f'{{"a": {"9" * digits}, "b": [{"1" * 5000}], "c": 1}}'.encode())
    assert found["c"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40)
@given(value=JSON)
def test_whatever_stands_beside_the_deep_is_kept(value: Any):
    cut = b"".join(json_parser._cut(json.dumps([value, "DEEP"]).replace('"DEEP"', deep_list(200)).encode()))
    assert json.loads(cut)[0] == value


@given(text=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_no_json(text: bytes):
    with contextlib.suppress(ValueError):
        json_parser.loads(text)


def test_a_large_page_is_cut_in_a_moment():
    page = b'{"a": "' + b"x" * 5_000_000 + b'", "b": ' + deep_list(200_000).encode() + b"}"
    began = time.process_time()
    assert len(json_parser.loads(page)["a"]) == 5_000_000
    assert time.process_time() - began < 5
