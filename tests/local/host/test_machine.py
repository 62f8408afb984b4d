"""What a machine lacks is said at once, in one list, each line with how to get it."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from local.host import machine
from local.host.machine import FIXED_PORTS, Machine, lacking
from local.host.ports import _RANGE
from local.control_plane.components import HEALTH_PAGES
from tests.conftest import ROOT

GOOD = Machine(
    is_linux=True,
    is_root=True,
    python=(3, 11),
    has_venv=True,
    commands=frozenset({"git", "make", "apt-get"}),
    memory_gib=7.6,
    disk_gib=20.0,
    cache="/root/.cache/gpudask",
    free_ports=11000,
    taken=(),
    has_cluster=False,
)


def test_a_good_machine_lacks_nothing():
    assert lacking(GOOD, for_cluster=True) == []


def test_all_that_is_missing_is_one_list():
    bare = Machine(
        is_linux=True,
        is_root=False,
        python=(3, 9),
        has_venv=False,
        commands=frozenset(),
        memory_gib=1.9,
        disk_gib=2.0,
        cache="/home/me/.cache/gpudask",
        free_ports=3,
        taken=(10257, 10259),
        has_cluster=False,
    )
    assert lacking(bare, for_cluster=True) == [
        (
            "Python 3.11, which the images have (this is 3.9): install one beside it, and say where it is:"
            " make PYTHON=/path/to/python3.11 ..."
        ),
        "Python's venv: apt-get install python3-venv",
        "git: apt-get install git",
        "make: apt-get install make",
        "apt-get: a Debian, or a system made of it such as Ubuntu",
        "root: run it with sudo, or as root in a virtual machine",
        "6 GiB of memory: this machine has 1.9",
        "8 GiB of free disk under /home/me/.cache/gpudask: it has 2.0; GPUDASK_CACHE_DIR names another place",
        "100 free ports between 20000 and 32000: there are 3",
        "port 10257, 10259, in use by another program: another Kubernetes? End it first (ss -ltnp names it)",
    ]


@pytest.mark.parametrize(("python", "wanted"), [((3, 10), 1), ((3, 11), 0), ((3, 13), 0)])
def test_without_a_cluster_newer_pythons_do_and_nothing_else_is_asked(python: tuple[int, int], wanted: int):
    alone = replace(GOOD, python=python, is_root=False, is_linux=False, memory_gib=1.0, disk_gib=0.0, free_ports=0)
    assert len(lacking(alone, for_cluster=False)) == wanted


def test_a_cluster_that_is_up_has_its_ports_and_its_disk():
    up = replace(GOOD, has_cluster=True, taken=FIXED_PORTS, disk_gib=1.0)
    assert lacking(up, for_cluster=True) == []


def test_what_is_checked_is_what_the_parts_take():
    assert {f":{port}/" for port in FIXED_PORTS} == {
        f":{page.split(':')[2].split('/')[0]}/" for page in HEALTH_PAGES.values()
    }
    assert machine.PORTS == _RANGE


def test_this_machine_can_be_read_and_runs_as_the_makefile_has_it(tmp_path: Path):
    found = Machine.read(tmp_path / "not" / "there")
    assert found.python == sys.version_info[:2]
    assert found.memory_gib > 0
    assert found.disk_gib > 0
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "local" / "host" / "machine.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_old_python_can_read_it():
    ast.parse(Path(machine.__file__).read_text(), feature_version=(3, 8))
    makefile = (ROOT / "Makefile").read_text()
    assert "local/host/machine.py cluster" in makefile


def test_the_readme_names_what_is_checked():
    text = " ".join((ROOT / "README.md").read_text().split())
    for word in (
        "root",
        "Python 3.11",
        "git",
        "make",
        "python3-venv",
        f"{machine.MEMORY_GIB} GiB of memory",
        f"{machine.DISK_GIB} GiB of disk",
    ):
        assert word in text, word
