"""Exit codes, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes, which a script may compare."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    TIMED_OUT = 4
    PROBLEM_FOUND = 5
    INTERRUPTED = 130

    @property
    def words(self) -> str:
        """Its meaning."""
        return _WORDS[self]


_WORDS = {
    Exit.OK: "done",
    Exit.FAILED: "refused, not valid, or the API server cannot be reached",
    Exit.USAGE: "the command line is not right",
    Exit.NOT_FOUND: "no such cluster, pool or pod",
    Exit.TIMED_OUT: "what was waited for did not come in time",
    Exit.PROBLEM_FOUND: "doctor found a problem",
    Exit.INTERRUPTED: "interrupted (ctrl-C)",
}


def ended(text: str) -> str:
    """`text` as a sentence that another may follow; others' words come with and without an end."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


class CliError(Exception):
    """The error that ends a command: a message for people, and the exit code."""

    def __init__(self, text: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(text)
        self.code = code
