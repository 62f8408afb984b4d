"""Cache keys change with everything that decides what comes out, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from local.host.hashing import content_key


def _tree(root: Path) -> Path:
    (root / "package").mkdir(parents=True)
    (root / "package" / "module.py").write_text("x = 1\n")
    (root / "package" / "other.py").write_text("y = 1\n")
    return root


def _key(root: Path, *texts: str) -> str:
    return content_key(texts=texts, files=[root / "package"], relative_to=root)


def test_the_same_content_elsewhere_has_the_same_key(tmp_path: Path):
    assert _key(_tree(tmp_path / "a")) == _key(_tree(tmp_path / "b"))


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "package" / "module.py").write_text("x = 2\n"),
        lambda root: (root / "package" / "module.py").rename(root / "package" / "renamed.py"),
        lambda root: (root / "package" / "new.py").write_text(""),
        lambda root: (root / "package" / "other.py").unlink(),
    ],
    ids=["edited", "renamed", "added", "removed"],
)
def test_a_changed_file_changes_the_key(tmp_path: Path, change: Callable[[Path], object]):
    root = _tree(tmp_path)
    before = _key(root)
    change(root)
    assert _key(root) != before


def test_bytecode_does_not_change_the_key(tmp_path: Path):
    root = _tree(tmp_path)
    before = _key(root)
    (root / "package" / "__pycache__").mkdir()
    (root / "package" / "__pycache__" / "module.pyc").write_bytes(b"bytecode")
    assert _key(root) == before


def test_texts_do_not_run_into_each_other(tmp_path: Path):
    root = _tree(tmp_path)
    assert _key(root, "ab", "c") != _key(root, "a", "bc")
