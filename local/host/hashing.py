"""Cache keys: a hash of everything that decides what comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_LENGTH = 16


def content_key(*, texts: Iterable[str] = (), files: Iterable[Path] = (), relative_to: Path) -> str:
    """Hash texts, and files with their names: the same content elsewhere has the same key.

    Args:
        texts: flags and versions, in an order that matters.
        files: files or directories, which count with all that they hold but bytecode.
        relative_to: what the files' names are counted from.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"text {len(text)} {text}\n".encode())
    for file in sorted(_expand(files)):
        content = file.read_bytes()
        digest.update(f"file {file.relative_to(relative_to)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:_LENGTH]


def _expand(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            yield from (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        else:
            yield path
