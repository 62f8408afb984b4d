"""Parser of the API server's JSON that survives what a tenant put into it: values nested too deep are cut out.

Python reads JSON recursively, and gives up at some 1000 levels and at integers of 4,300 digits. The API server takes
objects of up to 10,000 levels (Go's encoding/json), and a list carries hundreds of objects in one text. So what is too
deep is cut out of the text, and what stands beside it is read.

A tenant chooses such a text, of up to 1.5 MB of brackets, and has it sent again and again, while nothing else is done:
so no Python code runs for each of its brackets or strings, only functions of C do.
"""

from __future__ import annotations

import json
from array import array
from itertools import accumulate, chain, compress, count
from operator import add
from typing import Any

# Deeper than anything that the operator reads, and than api/resource.py allows: what was cut is refused there.
MAX_DEPTH = 100
_LONGEST_INTEGER = 20  # in characters: of 64 bits
_QUOTE_AND_BRACKETS = b'"[]{}'
_OTHERS = bytes(set(range(256)) - set(_QUOTE_AND_BRACKETS))
# What a bracket adds to the depth, as a signed byte; all else adds nothing.
_STEPS = bytes({ord("["): 1, ord("{"): 1, ord("]"): 0xFF, ord("}"): 0xFF}.get(byte, 0) for byte in range(256))


def loads(text: bytes) -> Any:
    """Parse the document; where Python cannot, without what lies below MAX_DEPTH levels.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return _loads_lenient(b"".join(_cut(text)))


def loads_shallow(text: bytes) -> Any:
    """Parse the document without what lies below MAX_DEPTH levels: for code that walks it recursively.

    Raises:
        ValueError: it is no JSON.
    """
    return _loads_lenient(b"".join(_cut(text)) if _is_deep(text) else text)


def shallow(text: bytes) -> bytes:
    """The document without what lies below MAX_DEPTH levels, as text: for code that parses it itself.

    One that is not so deep is the very same text, and what is wrong with it is for whoever parses it, but for a part
    of a document that ends too early.

    Raises:
        ValueError: it is no JSON.
    """
    if not _is_deep(text):
        return text
    cut = b"".join(_cut(text))
    try:
        json.loads(cut)
    except ValueError:
        return json.dumps(_loads_lenient(cut)).encode()
    return cut


def _loads_lenient(text: bytes) -> Any:
    """Parse a document that is not deep; an integer that is too long for Python is a float."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text, parse_int=_integer)


def _is_deep(text: bytes) -> bool:
    """Whether it has more than MAX_DEPTH levels.

    Raises:
        ValueError: not all of its many brackets are closed: it is a part of a document.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    # Quotes without a bracket between them go first: they are most, and two may go without a change to what is between
    # others.
    left = _without_escapes(text).translate(None, _OTHERS).replace(b'""', b"")
    brackets = b"".join(left.split(b'"')[::2]).translate(_STEPS)
    opening = brackets.count(b"\x01")
    if 2 * opening != len(brackets):
        raise json.JSONDecodeError(f"{opening} brackets are opened, {len(brackets) - opening} closed", "", 0)
    return max(accumulate(array("b", brackets)), default=0) > MAX_DEPTH


def _cut(text: bytes) -> list[bytes]:
    """`text` in pieces, with null for each value that is nested too deep."""
    parts = _without_escapes(text).split(b'"')
    parts[1::2] = map(bytes, map(len, parts[1::2]))  # each string is zeros now: what is left is where it was
    steps = array("b", b'"'.join(parts).translate(_STEPS))
    depths = list(accumulate(filter(None, steps), initial=0))
    # The brackets between MAX_DEPTH and one level more: they open and close in turns.
    crosses = map((2 * MAX_DEPTH + 1).__eq__, map(add, depths, depths[1:]))
    borders = list(compress(compress(count(), steps), crosses))
    if len(borders) % 2:
        borders.append(len(text))
    pieces = [b"null"] * (len(borders) + 1)
    kept = map(slice, chain((0,), map((1).__add__, borders[1::2])), chain(borders[::2], (len(text),)))
    pieces[::2] = map(text.__getitem__, kept)
    return pieces


def _without_escapes(text: bytes) -> bytes:
    """`text`, of the same length, in which each quote is the beginning or the end of a string."""
    return text.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in text else text


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
