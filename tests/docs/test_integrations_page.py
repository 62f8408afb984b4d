"""docs/integrations.md: the versions that it names are those that the tests run with, and its programs are Python."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT, Snippet, snippets

_PAGE = "docs/integrations.md"
_TEXT = (ROOT / _PAGE).read_text()
_LOCKED = dict(
    re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / "client-integrations.lock").read_text(), re.MULTILINE)
)
_TRIED = dict(re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|$", _TEXT, re.MULTILINE))
_NAMES_NO_PACKAGE = {"Versions tried", "Not here", "Programs for dask-jobqueue and other cluster managers"}


def test_the_versions_are_those_of_the_lock() -> None:
    assert {name: _LOCKED.get(name) for name in _TRIED} == _TRIED, "make lock, then correct the table"


@pytest.mark.parametrize("title", sorted(set(re.findall(r"^## (.+)$", _TEXT, re.MULTILINE)) - _NAMES_NO_PACKAGE))
def test_the_packages_of_a_section_are_in_the_table(title: str) -> None:
    section = _TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    installed = re.search(r"^pip install 'gpudask\[client,image\]' (.+)$", section, re.MULTILINE)
    assert installed, f"{title} does not say what to install"
    for name in installed[1].split():
        assert {name, f"{name}-cpu"} & _TRIED.keys(), f"{name} is in no row of the table"


@pytest.mark.parametrize("snippet", [each for each in snippets("python") if each.page == _PAGE], ids=str)
def test_a_program_is_python(snippet: Snippet) -> None:
    ast.parse(snippet.text)
