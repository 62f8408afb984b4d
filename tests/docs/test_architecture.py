"""The house: the map for contributors is true, no room is crowded, no file is long, and imports make no circle."""

from __future__ import annotations

import graphlib
import re
import subprocess
import sys

import grimp
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


@pytest.mark.parametrize("part", sorted(path.name for path in (PACKAGE / "preload").rglob("[a-z]*.py")))
def test_all_of_the_preload_is_on_it(part: str):
    assert any(f"`{room}{part}`" in MAP for room in ("", "preload/", "graphs/", "drains/"))


@pytest.mark.parametrize("path", list(_PATH.finditer(MAP)), ids=lambda path: path["title"])
def test_a_path_is_short(path: re.Match[str]):
    assert 5 <= len(set(_FILE.findall(path["steps"]))) <= _AT_MOST


def test_the_list_of_modules_is_what_their_docstrings_say():
    printed = subprocess.run([sys.executable, ROOT / "docs" / "modules.py"], capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "modules.md").read_text() == printed.stdout, "docs/modules.md is old: make generate"


def test_there_are_paths():
    assert len(_PATH.findall(MAP)) == 4


MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = {path.parent.relative_to(ROOT).as_posix() for path in (*MODULES, *(ROOT / "local").rglob("*.py"))}
# A newcomer looks over so many names at a glance; files and rooms of a room, without `__init__`.
_AT_A_GLANCE = 20
_CROWDED = {"operator/gpudask/preload": 23}  # a part is a file, but for `graphs` and `drains`
_LONGEST = 500  # lines that one reads in one go
# In all, `__init__` too. The last 92 are for what programs that connect need: credentials and deletion of their own,
# conditions, arguments of other cluster managers, the command line in kubectl's ways (15); for the ledger (5); for what
# GPUs cost: ledgers, prices and the statement, and the report's page (14); for what stays of clusters: the record's
# models, its room, its writer, the preload's part and the commands (19); for graphs that the scheduler cannot read (6);
# for the launcher (3); for the client parts of programs on GPU workers (6); for jobs: their model, planner and loops
# (13), and the commands that run and follow them (7); for stock objects that people make (4), and for the takeover of
# what the stock operator ran (2). For a forwarded connection that is kept (1), the metrics of jobs (2), and what keeps
# the process small (1). For the second look after an answer that may not be true (1), and for a protocol of a pool's
# own, in the preload and in the planning (2).
_FILES = 307


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_is_not_crowded(room: str):
    within = [path for path in (ROOT / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = [path.name for path in within if path.name != "__init__.py"]
    assert len(names) <= _CROWDED.get(room, _AT_A_GLANCE), f"{room} has {len(names)}: merge what has one importer"


def test_there_are_no_more_files_than_a_reader_gets_to_know():
    assert len(MODULES) <= _FILES, f"{len(MODULES)} files: merge a fragment, or raise the number and say what for"


def test_no_file_is_too_long_to_be_read_in_one_go():
    """Who changes a line has to know the file around it."""
    lines = {str(path.relative_to(PACKAGE)): path.read_text().count("\n") for path in MODULES}
    assert not {name: count for name, count in lines.items() if count >= _LONGEST}


def test_imports_make_no_circle():
    """Else none of its files can be understood, or tested, without the others."""
    graph = grimp.build_graph("gpudask", exclude_type_checking_imports=True, cache_dir=None)
    order = graphlib.TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules})
    order.prepare()  # raises CycleError, which names it
