#!/usr/bin/env python3
"""The list of all modules of the operator's package, each with the first sentence of its docstring: docs/modules.md.

`python docs/modules.py` prints it; `make generate` writes it, and a test fails on drift.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "operator" / "gpudask"

_HEAD = """\
<!-- Made by `make generate` from the modules' docstrings. Do not edit. -->
# Modules

All files of `operator/gpudask`, by room. How they work together: [architecture.md](architecture.md).
"""


def index() -> str:
    """The text of docs/modules.md."""
    rooms = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    return _HEAD + "".join(_room(room) for room in rooms)


def _room(room: Path) -> str:
    name = room.relative_to(PACKAGE).as_posix()
    title = "`gpudask`" if name == "." else f"`{name}/`"
    files = (path for path in sorted(room.glob("*.py")) if not path.name.startswith("__init__"))
    lines = "".join(f"- `{path.name}`: {_sentence(path)}\n" for path in files)
    return f"\n## {title}\n{_sentence(room / '__init__.py')}\n\n{lines}".rstrip() + "\n"


def _sentence(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise ValueError(f"{path} has no docstring: begin it with a sentence on what belongs there")
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(index())
