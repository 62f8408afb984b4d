"""JSON of the API server, read whatever a tenant put into it.

Python reads JSON recursively, and gives up at some 1000 levels. The API server takes objects of up to 10,000 levels
(Go's encoding/json), so that one object in one namespace would end the
watch of all. Such a document is read all the same, and then cut.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# Deeper than anything that the operator reads, and than api/size_limits.py allows: what was cut is refused there.
MAX_DEPTH = 100
# Above the API server's limit with what it puts around an object; 2 MiB of stack, of the 8 that a process has.
_RECURSION_LIMIT = 12_000


def loads(text: str | bytes) -> Any:
    """The document; where it is deeper than Python reads, without what lies below MAX_DEPTH levels.

    Raises:
        ValueError: it is no JSON, or deeper than the API server takes.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return _cut(_deep(text))


def loads_shallow(text: bytes) -> Any:
    """The document without what lies below MAX_DEPTH levels: for those who go through it recursively.

    Raises:
        ValueError: as `loads`.
    """
    return _cut(loads(text)) if _may_be_deep(text) else json.loads(text)


def shallow(text: bytes) -> bytes:
    """The document as `loads_shallow` has it, written out again: for those who read it themselves.

    Raises:
        ValueError: as `loads`.
    """
    return json.dumps(loads_shallow(text)).encode() if _may_be_deep(text) else text


def _may_be_deep(text: bytes) -> bool:
    return text.count(b"{") + text.count(b"[") > MAX_DEPTH


def _deep(text: str | bytes) -> Any:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested deeper than the API server takes") from error
    finally:
        sys.setrecursionlimit(before)


def _cut(document: Any) -> Any:
    """`document` with null for what is nested too deep, in place. Not recursive."""
    left = [(document, 1)]
    while left:
        node, level = left.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, item in list(items):
            if not isinstance(item, dict | list):
                continue
            if level < MAX_DEPTH:
                left.append((item, level + 1))
            else:
                node[key] = None
    return document
