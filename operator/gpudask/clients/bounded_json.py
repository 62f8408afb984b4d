"""JSON from a peer that is not trusted: what it would cost is known before it is parsed."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

DEPTH = 16
_EMPTY = re.compile(rb'"[^"]*"')
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


class BadJsonError(ValueError):
    """It is no JSON, or more than an honest peer would send; the message says what is expected."""


def loads(body: bytes, *, values: int) -> Any:
    """`body` as JSON of at most about so many `values`, nested about 16 deep at most, without NaN and Infinity.

    Each value costs up to 64 bytes of memory, whatever its text is. Of a key that comes twice, the last one counts.

    Raises:
        BadJsonError: it is something else.
    """
    found = body.count(b",") + body.count(b"[") + body.count(b"{")
    if found > values:
        raise BadJsonError(f"expected at most {values} values, got about {found}")
    if not _is_shallow(body):
        raise BadJsonError(f"expected JSON, nested at most {DEPTH} deep")
    try:
        return json.loads(body.decode(), parse_constant=_refuse)
    except BadJsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise BadJsonError(f"expected JSON: {type(error).__name__}") from None  # it holds the whole text


def _is_shallow(body: bytes) -> bool:
    """Whether all brackets outside of texts are gone once empty pairs were taken out so many times."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    left = _EMPTY.sub(b"", body.translate(None, _ALL_BUT_BRACKETS).replace(b'""', b""))
    for _ in range(DEPTH):
        if not left:
            return True
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return not left


def _refuse(constant: str) -> NoReturn:
    raise BadJsonError(f"expected numbers, got {constant}")
