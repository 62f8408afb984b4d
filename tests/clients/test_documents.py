"""JSON of any depth is read, or refused as no JSON is: never with a RecursionError."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from gpudask.clients import documents
from gpudask.clients.api_server import _answer


def text_of(depth: int, *, lists: bool = False) -> bytes:
    return (b"[" if lists else b'{"a":') * depth + b"1" + (b"]" if lists else b"}") * depth


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, dict | list) and value:
        depth, value = depth + 1, next(iter(value.values() if isinstance(value, dict) else value))
    return depth


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("depth", [2_000, 9_999])
def test_as_deep_as_the_api_server_takes_it_is_cut(depth: int, lists: bool):
    text = text_of(depth, lists=lists)
    with pytest.raises(RecursionError):
        json.loads(text)
    limit = sys.getrecursionlimit()
    assert depth_of(documents.loads(text)) == documents.MAX_DEPTH
    assert depth_of(documents.loads_shallow(text)) == documents.MAX_DEPTH
    assert depth_of(json.loads(documents.shallow(text))) == documents.MAX_DEPTH
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("read", [documents.loads, documents.loads_shallow, documents.shallow])
@pytest.mark.parametrize("text", [text_of(100_000), text_of(100_000, lists=True), b"[" * 200 + b"no JSON"])
def test_deeper_ones_are_refused_as_no_json_is(read: Any, text: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - any words will do
        read(text)


def test_what_is_not_deep_stays_as_it_is():
    wide = json.dumps([{"a": [{"b": {}}]}] * 1000).encode()
    assert (
        documents.loads(wide)
        == documents.loads_shallow(wide)
        == json.loads(documents.shallow(wide))
        == json.loads(wide)
    )
    little = b'{"a": 1 }'
    assert documents.shallow(little) is little


def test_what_lies_beside_the_deep_stays():
    body = json.loads(documents.shallow(b'{"metadata": {"uid": "u"}, "spec": ' + text_of(5_000) + b"}"))
    assert body["metadata"] == {"uid": "u"}


def test_an_answer_with_a_deep_object_is_read():
    assert (
        _answer(200, b'{"metadata": {"uid": "u"}, "spec": ' + text_of(9_000) + b"}", "GET /x")["metadata"]["uid"] == "u"
    )
