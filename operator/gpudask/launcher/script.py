"""The text that pods get of `one_process`, as an argument of their command."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

# Dask's command ends where a preload fails, an import of what a release does not have, for instance: so nothing may.
_GUARDED = """\
try:
    install()
except Exception:
    import logging
    logging.getLogger("distributed").exception("The worker gets a process of its own, and a nanny")
"""
_DOCUMENTED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def one_process() -> str:
    """The text of `one_process` as a preload that never fails, without docstrings and comments: some 6 KB."""
    source = ast.parse(Path(__file__).with_name("one_process.py").read_text(encoding="utf-8"))
    body = [node for node in source.body if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    (guarded,) = ast.parse(_GUARDED).body
    assert isinstance(guarded, ast.Try), "as it stands above"
    guarded.body[:0] = body[1:]
    return ast.unparse(_Bare().visit(ast.Module([guarded], [])))


class _Bare(ast.NodeTransformer):
    """Removes docstrings and annotations."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        return super().generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """An argument of a function."""
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment with a type."""
        assert node.value is not None, "one without a value would be lost"
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)
