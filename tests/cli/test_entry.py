"""Without its extra a command, or an import, names what to install instead of a traceback."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint

import pytest

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# As where no extra is installed: these modules are not to be found.
_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
EXTRAS = (
    "typer",
    "rich",
    "click",
    "distributed",
    "dask",
    "tornado",
    "httpx",
    "httpx_ws",
    "kr8s",
    "kopf",
    "kubernetes",
    "aiohttp",
)


def run(program: str, *without: str) -> subprocess.CompletedProcess[str]:
    code = _WITHOUT.format(modules=set(without)) + program
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", sorted(PROJECT["scripts"]))
def test_a_command_without_its_extra_names_it(command: str):
    module, _, function = PROJECT["scripts"][command].partition(":")
    done = run(f"sys.argv = [{command!r}, '--version']\nfrom {module} import {function} as f\nsys.exit(f())", *EXTRAS)
    extra = "operator" if command == "gpudask-operator" else "cli"
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"is not installed: pip install 'gpudask[{extra}]'" in done.stderr


@pytest.mark.parametrize("name", ["KubeCluster", "discover", "CreateMode"])
def test_an_import_without_the_client_names_it(name: str):
    said = run(f"from gpudask import {name}\nprint('imported')", *EXTRAS)
    if name == "discover":  # it has nothing to discover, and says so by being empty
        assert said.stdout == "imported\n"
        return
    assert "pip install 'gpudask[client]'" in said.stderr


def test_what_is_missing_for_another_reason_stays_a_traceback():
    done = run("from gpudask.entry import command_line\ncommand_line()", "yaml")
    assert "ModuleNotFoundError: No module named 'yaml'" in done.stderr
    assert "pip install" not in done.stderr


def test_the_commands_exist():
    for name, value in PROJECT["scripts"].items():
        assert callable(EntryPoint(name, value, "console_scripts").load())
