"""Parser of the API server's JSON that survives what a tenant put into it: values nested too deep are cut out.

Python reads JSON recursively, and gives up at some 1000 levels and at integers of 4,300 digits. The API server takes
objects of up to 10,000 levels (Go's encoding/json), and a list carries hundreds of objects in one text. So what is too
deep is cut out of the text, and what stands beside it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Deeper than anything that the operator reads, and than api/resource.py allows: what was cut is refused there.
MAX_DEPTH = 100
_LONGEST_INTEGER = 20  # in characters: of 64 bits
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """Parse the document; where Python cannot, without what lies below MAX_DEPTH levels.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return _loads_cut(text)


def loads_shallow(text: bytes) -> Any:
    """Parse the document without what lies below MAX_DEPTH levels: for code that walks it recursively.

    Raises:
        ValueError: it is no JSON.
    """
    return _loads_cut(text) if _may_be_deep(text) else loads(text)


def shallow(text: bytes) -> bytes:
    """The document without what lies below MAX_DEPTH levels, as text: for code that parses it itself.

    Raises:
        ValueError: it is no JSON.
    """
    return json.dumps(loads_shallow(text)).encode() if _may_be_deep(text) else text


def _may_be_deep(text: bytes) -> bool:
    return text.count(b"{") + text.count(b"[") > MAX_DEPTH


def _loads_cut(text: bytes) -> Any:
    return json.loads(b"".join(_cut(text)), parse_int=_integer)


def _cut(text: bytes) -> Iterator[bytes]:
    """`text`, with null for each value that is nested too deep."""
    depth = kept = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == MAX_DEPTH + 1:
                yield text[kept : token.start()] + b"null"
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == MAX_DEPTH:
                kept = token.end()
    yield text[kept:]


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
