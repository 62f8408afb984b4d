"""Short, sanitized quotes of text by others: schedulers, workers, containers. Such text is shown in no other way.

A scheduler runs its user's code, so its text may hold terminal escapes, line breaks that forge a line of a log, or
characters that turn the direction of what follows.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

QUOTE_LENGTH = 200

# ECMA-48: control sequences (colours, cursor), and strings for the terminal (its title, links) up to their terminator.
_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
_SPACE = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")
# Combining marks, more than two of which cover the lines around.
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILE = re.compile(f"({_MARK}{{2}}){_MARK}+")
# Of a text so many times longer than its quote nothing more is looked at.
_LOOKED_AT = 4
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})  # controls, formats (direction marks too), surrogates, unassigned
_REMEMBERED = 4096
_QUOTATION_MARKS = ("'", '"')
_DIGEST_LENGTH = 12


class _Visible(dict[int, str]):
    """The character shown for a code point. Most are looked up once: a hostile answer has millions."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        hidden = unicodedata.category(character) in _HIDDEN and not _SPACE.match(character)
        shown = "\ufffd" if hidden else character
        if len(self) < _REMEMBERED:
            self[code] = shown
        return shown


_VISIBLE = _Visible()


def quote(text: str, length: int = QUOTE_LENGTH) -> str:
    """`text` in one line of at most `length` characters: without terminal sequences, what is invisible as `\ufffd`."""
    if len(text) <= length and text.isascii() and text.isprintable() and "  " not in text and text == text.strip():
        return text  # as nearly always, thousands of times an answer
    cleaned = text[: _LOOKED_AT * length]
    if not (cleaned.isascii() and cleaned.isprintable()):
        cleaned = _PILE.sub(r"\1", _TERMINAL.sub("", cleaned).translate(_VISIBLE))
    cleaned = _SPACE.sub(" ", cleaned).strip()
    whole = len(cleaned) <= length and len(text) <= _LOOKED_AT * length
    return cleaned if whole else f"{cleaned[: length - 1].rstrip()}\u2026"


def quote_lines(text: str, length: int) -> str:
    """The end of `text`, at most `length` characters, in its lines: each without terminal sequences, and visible."""
    cleaned = text[-_LOOKED_AT * length :]
    if not (cleaned.isascii() and cleaned.isprintable()):
        cleaned = _PILE.sub(r"\1", _TERMINAL.sub("", cleaned).replace("\t", "    "))
        cleaned = "\n".join(line.translate(_VISIBLE).rstrip() for line in cleaned.splitlines())
    cleaned = cleaned.strip("\n")
    if len(cleaned) <= length and len(text) <= _LOOKED_AT * length:
        return cleaned
    kept = cleaned[-(length - 1) :]
    _, newline, whole = kept.partition("\n")
    return f"\u2026{whole if newline and len(whole) >= length // 2 else kept}"


def quote_last_line(text: str, length: int = QUOTE_LENGTH) -> str:
    """The last line of `text` that is not blank, quoted: of a traceback the error."""
    end = text.rstrip()
    return quote(end[end.rfind("\n") + 1 :], length)


def quote_name(name: str, length: int = QUOTE_LENGTH) -> str:
    """`name` as it is, where it is short and clean; else an escaped form: different names stay different.

    The escaped form begins with a quotation mark, and a name that begins with one is escaped, too; what had to be cut
    or cleaned ends with a digest of the whole name.
    """
    if name == quote(name, length) and not name.startswith(_QUOTATION_MARKS):
        return name
    escaped = ascii(name[:length])
    if len(name) <= length and escaped == quote(escaped, length):
        return escaped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{quote(escaped[: length - _DIGEST_LENGTH - 1], length)}~{digest}"
