"""The map for contributors: the files that it names exist, and no package and no part of the preload is left out."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "operator" / "gpudask"
MAP = (ROOT / "docs" / "architecture.md").read_text()
_FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
# A table of one room names its files without it.
_ROOMS = ("", "preload", "kubecluster")
_PATH = re.compile(r"^\*\*(?P<title>[^*]+)\*\*\n\n(?P<steps>(?:\d+\. .*\n)+)", re.MULTILINE)
_AT_MOST = 12


@pytest.mark.parametrize("name", sorted(set(_FILE.findall(MAP))))
def test_a_file_that_it_names_exists(name: str):
    assert any((PACKAGE / room / name).is_file() for room in _ROOMS), f"there is no {name}: correct the map"


@pytest.mark.parametrize(
    "package", sorted(path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*/__init__.py"))
)
def test_every_package_is_on_it(package: str):
    assert f"`{package}/" in MAP


@pytest.mark.parametrize("part", sorted(path.name for path in (PACKAGE / "preload").glob("[a-z]*.py")))
def test_all_of_the_preload_is_on_it(part: str):
    assert f"`{part}`" in MAP or f"`preload/{part}`" in MAP


@pytest.mark.parametrize("path", list(_PATH.finditer(MAP)), ids=lambda path: path["title"])
def test_a_path_is_short(path: re.Match[str]):
    assert 5 <= len(set(_FILE.findall(path["steps"]))) <= _AT_MOST


def test_there_are_paths():
    assert len(_PATH.findall(MAP)) == 4
