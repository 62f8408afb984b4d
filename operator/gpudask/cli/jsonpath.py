"""`-o jsonpath='{.status.phase}'`: parts of an object as text, by the templates that kubectl knows. Pure.

https://kubernetes.io/docs/reference/kubectl/jsonpath/: text outside of braces stands for itself; inside are a path, a
text in quotes, or `{range .items[*]}...{end}`. What is not there is printed as nothing. Several values have a blank
between them; what is no text is printed as JSON.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_PIECE = re.compile(r"""\{(?P<inside>(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^{}"'])*)\}|(?P<text>[^{}]+)""")
_STEP = re.compile(
    r"""(?P<deep>\.\.)(?=[\w*\[])
    | \.?\[\?\((?P<filter>.+?)\)\]
    | \.?\[(?P<all>\*)\] | \.?(?P<each>\*)
    | \.?\['(?P<single>[^']*)'\] | \.?\["(?P<double>[^"]*)"\]
    | \.?\[(?P<index>-?\d{1,9})\]
    | \.?\[(?P<first>-?\d{0,9}):(?P<last>-?\d{0,9})\]
    | \.?(?P<name>(?:[^.\[\]{}()\s\\'"*]|\\.)+)""",
    re.VERBOSE,
)
_FILTER = re.compile(r"^\s*@(?P<path>\S*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*$")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
_MOST_NESTED = 10

Step = Callable[[Any], Iterator[Any]]
Path = tuple[Step, ...]


@dataclass
class _Range:
    """A `range` with what is between it and its `end`."""

    path: Path
    body: list[Piece] = field(default_factory=list)


Piece = str | Path | _Range


def render(template: str, value: Any) -> str:
    """`template` with the parts of `value` that it asks for.

    Raises:
        ValueError: it is no template; the message says what to write.
    """
    return _text(read(template), value)


def read(template: str) -> list[Piece]:
    """The pieces of a template.

    Raises:
        ValueError: as `render`.
    """
    pieces: list[Piece] = []
    open_ranges: list[list[Piece]] = [pieces]
    position = 0
    while position < len(template):
        match = _PIECE.match(template, position)
        if match is None:
            raise _no_template(template, f"a brace without its other one, or an open quote: {template[position:]}")
        position = match.end()
        inside = (match["inside"] or "").strip()
        if match["text"] is not None:
            open_ranges[-1].append(match["text"])
        elif inside == "end":
            if len(open_ranges) == 1:
                raise _no_template(template, "{end} without its {range}")
            open_ranges.pop()
        elif inside.startswith("range ") and len(open_ranges) <= _MOST_NESTED:
            one = _Range(_path(inside.removeprefix("range "), template))
            open_ranges[-1].append(one)
            open_ranges.append(one.body)
        elif inside[:1] in ("'", '"'):
            open_ranges[-1].append(_unquoted(inside))
        else:
            open_ranges[-1].append(_path(inside, template))
    if len(open_ranges) > 1:
        raise _no_template(template, "{range} without its {end}")
    if not any(not isinstance(piece, str) for piece in pieces):
        raise _no_template(template, "it asks for nothing")
    return pieces


def _text(pieces: list[Piece], value: Any) -> str:
    parts = []
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(piece)
        elif isinstance(piece, _Range):
            parts += [_text(piece.body, item) for item in _found(piece.path, value)]
        else:
            parts.append(" ".join(item if isinstance(item, str) else json.dumps(item) for item in _found(piece, value)))
    return "".join(parts)


def _found(path: Path, value: Any) -> list[Any]:
    found = [value]
    for step in path:
        found = [item for each in found for item in step(each)]
    return found


def _path(text: str, template: str) -> Path:
    rest = text.strip().removeprefix("$").removeprefix("@")
    steps: list[Step] = []
    while rest and rest != ".":
        match = _STEP.match(rest)
        if match is None:
            raise _no_template(template, f"no path: {text.strip()}")
        steps.append(_step(match, template))
        rest = rest[match.end() :]
    return tuple(steps)


def _step(match: re.Match[str], template: str) -> Step:
    if match["deep"]:
        return _descendants
    if match["all"] or match["each"]:
        return _children
    if match["filter"]:
        return _filter(match["filter"], template)
    if match["index"]:
        number = int(match["index"])
        return lambda value: iter(value[number : number + 1 or None] if isinstance(value, list) else [])
    if match["first"] is not None:
        part = slice(*(int(end) if end else None for end in (match["first"], match["last"])))
        return lambda value: iter(value[part] if isinstance(value, list) else [])
    quoted = match["single"] if match["single"] is not None else match["double"]
    key = re.sub(r"\\(.)", r"\1", match["name"]) if quoted is None else quoted
    return lambda value: iter([value[key]] if isinstance(value, dict) and key in value else [])


def _children(value: Any) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descendants(child)


def _filter(text: str, template: str) -> Step:
    match = _FILTER.match(text)
    if match is None:
        raise _no_template(template, f"no condition: {text}")
    path, sign = _path(match["path"], template), match["sign"]
    if sign is None:
        return lambda value: (item for item in _children(value) if _found(path, item))
    wanted = _literal(match["value"], template)

    def holds(item: Any) -> bool:
        try:
            return any(_SIGNS[sign](found, wanted) for found in _found(path, item))
        except TypeError:  # a number and a text have no order
            return False

    return lambda value: (item for item in _children(value) if holds(item))


def _literal(text: str, template: str) -> Any:
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return _unquoted(text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise _no_template(template, f"{text} is no number, and no text in quotes") from error


def _unquoted(text: str) -> str:
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda match: plain.get(match[1], match[1]), text[1:-1])


def _no_template(template: str, why: str) -> ValueError:
    return ValueError(f"jsonpath={template}: {why}; write for example -o jsonpath='{{.status.phase}}'")
