"""JSON whose nesting has an end: an object that is nested too deep for Python's parser is cut, and no other with it.

Lists carry hundreds of objects in one text, and who may write one of them may nest it as deep as the API server reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# Deeper than anything that we read, and far from where the parser gives up.
_DEEPEST = 100
_LONGEST_INTEGER = 20  # in characters: of 64 bits
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def loads(text: bytes) -> Any:
    """The value of a JSON text; where it cannot be read as it is, without what is nested deeper than 100 levels.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return json.loads(b"".join(_cut(text)), parse_int=_integer)


def _cut(text: bytes) -> Iterator[bytes]:
    """`text`, with null for each value that is nested too deep."""
    depth = kept = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                yield text[kept : token.start()] + b"null"
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == _DEEPEST:
                kept = token.end()
    yield text[kept:]


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
