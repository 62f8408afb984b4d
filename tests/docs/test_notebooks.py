"""The notebooks as they stand in git: they can be read, their code can be compiled, and they hold no outputs."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_there_is_a_notebook():
    assert ROOT / "examples" / "quickstart.ipynb" in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_valid_and_its_code_can_be_read(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    for cell in code:
        ast.parse(cell.source, filename=f"{path.name}, cell {cell.id}")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs(path: Path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], f"cell {cell.id}: clear its outputs before you commit it"
            assert cell.execution_count is None, f"cell {cell.id}: clear its outputs before you commit it"
