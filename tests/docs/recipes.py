"""docs/tasks.md as steps that a program can follow. What follows them is tests/e2e/newcomer.py."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.docs.pages import BLOCK, ROOT

PAGE = ROOT / "docs" / "tasks.md"
# What the page itself says of a block that no test can run as it is written: a paragraph right after it.
_INSTEAD = re.compile(r"\*Tests do instead:\* (?P<words>.+?)(?=\n\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^## (?P<number>\d+)\. (?P<title>.+)$", re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w.-]+)\n")


@dataclass(frozen=True)
class Step:
    """One fenced block: what it is, the lines that it must print, and what the page says is tested instead of it."""

    language: str
    text: str
    prints: tuple[str, ...] = ()
    instead: str = ""

    @property
    def file(self) -> str:
        """The name that its first line gives it; empty for commands."""
        named = _FILE.match(self.text)
        return named["name"] if named else ""


@dataclass(frozen=True)
class Task:
    """One section of the page."""

    number: int
    title: str
    steps: tuple[Step, ...]

    def step(self, file: str) -> Step:
        """The block of that file."""
        return next(step for step in self.steps if step.file == file)


def tasks() -> dict[int, Task]:
    """The page's tasks, by number."""
    text = PAGE.read_text()
    titles = list(_TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    return {
        int(title["number"]): Task(int(title["number"]), title["title"], _steps(text[title.end() : end]))
        for title, end in zip(titles, ends, strict=True)
    }


def _steps(section: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    for block in BLOCK.finditer(section):
        if block["language"] == "text":
            steps[-1] = replace(steps[-1], prints=tuple(block["text"].splitlines()))
            continue
        instead = _INSTEAD.match(section[block.end() :].lstrip())
        steps.append(Step(block["language"], block["text"], instead=instead["words"] if instead else ""))
    return tuple(steps)
