"""Fields of an API object, each read with a limit: whatever JSON comes, a value or an `UnreadableError`.

Null and missing are the same, and are empty: so Kubernetes writes what is not set. A text that is too long is cut.
"""

from __future__ import annotations

from datetime import datetime

from gpudask.api import Json

NAME_LENGTH = 253  # of names in Kubernetes
TEXT_LENGTH = 1024
VERSION_DIGITS = 20  # of an unsigned 64-bit number
# Times are from a second after the epoch, so that they differ from 0.0, which is none, to the last one that
# Python can write.
_FIRST_TIME, _LAST_TIME = 1.0, 253402300799.0
_LARGEST = 2**31 - 1


class UnreadableError(ValueError):
    """An object that cannot be read; the message names the field, what was expected and what came."""

    def __init__(self, field: str, expected: str, value: object) -> None:
        came = "nothing" if value is None or value == "" else f"{type(value).__name__} {_excerpt(value)}".strip()
        super().__init__(f"{field}: expected {expected}, got {came}")


def mapping(body: Json, name: str) -> Json:
    """The object in the field `name`."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableError(name, "an object", value)
    return value


def items(body: Json, name: str) -> list[Json]:
    """The list of objects in the field `name`."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableError(name, "a list", value)
    for item in value:
        if not isinstance(item, dict):
            raise UnreadableError(name, "a list of objects", item)
    return value


def strings(body: Json, name: str) -> list[str]:
    """The list of texts in the field `name`, as long as names are at most."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UnreadableError(name, "a list of strings", value)
    return [clean(item[:NAME_LENGTH]) for item in value]


def text(body: Json, name: str, limit: int = NAME_LENGTH) -> str:
    """The text in the field `name`, at most `limit` characters of it."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableError(name, "a string", value)
    return clean(value[:limit])


def clean(value: str) -> str:
    """`value` as text that can be sent: half a surrogate pair, which JSON can say, is replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def identifier(body: Json, name: str) -> str:
    """The text in the field `name`, which has to be there, and whole."""
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_LENGTH:
        raise UnreadableError(name, f"1 to {NAME_LENGTH} characters", value)
    return clean(value)


def version(metadata: Json) -> str:
    """The resourceVersion: a number in decimal digits, by which an older copy is told from a newer one."""
    value = metadata.get("resourceVersion")
    if not is_version(value):
        raise UnreadableError("resourceVersion", f"a number of at most {VERSION_DIGITS} digits", value)
    return str(value)


def is_version(value: object) -> bool:
    """True if `value` is a resourceVersion that can be compared."""
    return isinstance(value, str) and len(value) <= VERSION_DIGITS and value.isascii() and value.isdecimal()


def number(body: Json, name: str) -> int | None:
    """The whole number in the field `name`, no larger than 32 bits hold; None where there is none."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnreadableError(name, "a whole number", value)
    return max(-_LARGEST, min(value, _LARGEST))


def time(body: Json, name: str) -> float:
    """The time in the field `name` in seconds since the epoch, 0.0 where there is none.

    What lies before the epoch, or after what a status can say, is moved to the nearest that does not.
    """
    value = body.get(name)
    if value is None or value == "":
        return 0.0
    if not isinstance(value, str):
        raise UnreadableError(name, "a time", value)
    try:
        seconds = datetime.fromisoformat(value[:64]).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise UnreadableError(name, "a time such as 2026-12-01T18:00:00Z", value) from error
    return bounded_time(seconds)


def bounded_time(seconds: float) -> float:
    """The time `seconds`, moved to the nearest that a status can say."""
    return max(_FIRST_TIME, min(seconds, _LAST_TIME))


def _excerpt(value: object) -> str:
    """A few characters of a plain value: the message goes to a log."""
    if isinstance(value, str):
        return repr(clean(value[:40]))
    return repr(value) if isinstance(value, bool | float) else ""
