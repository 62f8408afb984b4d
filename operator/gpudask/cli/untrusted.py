"""JSON that anybody may have written, read for people: always a value of bounded size, never an error.

Status and records come from the API server, and what is in them from tenants, too: a field that is not what it should
be is read as if it were missing, so that it hides nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from gpudask.api import Json
from gpudask.api.untrusted_text import quote, quote_lines, quote_name

LARGEST = 1e12
"""Of amounts: as GPU-seconds thirty thousand years of one GPU."""
MOST_ITEMS = 1000
_NAME_LENGTH = 253


def field(body: object, *path: str) -> Any:
    """What stands at `path`, None where nothing does."""
    for name in path:
        if not isinstance(body, dict):
            return None
        body = body.get(name)
    return body


def objects(body: object, *path: str, most: int = MOST_ITEMS) -> list[Json]:
    """The objects of the list at `path`, the first `most` of them; what is no object is left out."""
    value = field(body, *path)
    found: Iterator[Json] = (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
    return list(islice(found, most))


def amount(body: object, *path: str) -> float:
    """The amount at `path`: 0 to LARGEST; what is no number, or none at all, is 0."""
    value = field(body, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    limited = min(max(value, 0), LARGEST)  # before it is a float: a whole number in JSON may have a thousand digits
    return 0.0 if math.isnan(limited) else float(limited)


def whole(body: object, *path: str) -> int:
    """The whole number at `path`, such as an exit code, which may be negative; 0 where it is none."""
    value = field(body, *path)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return int(max(-LARGEST, min(value, LARGEST)))


def name(body: object, *path: str) -> str:
    """The name at `path`, by which things are compared: two that differ stay so. Empty where there is none."""
    value = field(body, *path)
    return quote_name(value, _NAME_LENGTH) if isinstance(value, str) else ""


def text(body: object, *path: str, length: int = 200) -> str:
    """The text at `path` in one line, without what a terminal acts on or what cannot be seen."""
    value = field(body, *path)
    return quote(value, length) if isinstance(value, str) else ""


def lines(body: object, *path: str, length: int = 4000) -> str:
    """The end of the text at `path`, at most `length` characters, in its lines: each quoted, with its spaces."""
    value = field(body, *path)
    return quote_lines(value, length) if isinstance(value, str) else ""


def log_line(line: str) -> str:
    """A line of a log as one that a terminal may have; of one that was written over itself, what stood there last."""
    shown = ""
    for part in reversed(line.split("\r")):
        shown = quote_lines(part, 4 * len(part) + 1).replace("\n", " ")  # a tab becomes four spaces
        if shown.strip():
            break
    return shown


def time(body: object, *path: str) -> float | None:
    """The time at `path` in seconds since 1970, None where there is none."""
    value = field(body, *path)
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value[:64])
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def texts(body: object, *path: str, most: int = 64) -> dict[str, str]:
    """The texts of the object at `path`, such as labels."""
    value = field(body, *path)
    found = value.items() if isinstance(value, dict) else ()
    return {
        key: quote(item, _NAME_LENGTH)
        for key, item in islice(found, most)
        if isinstance(key, str) and isinstance(item, str)
    }
