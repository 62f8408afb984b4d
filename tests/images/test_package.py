"""What the Dask images carry of the package is all that programs and tasks in their pods import."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Ran = subprocess.CompletedProcess[str]
_COPIED = re.compile(r"^COPY ((?:operator/gpudask/\S+ )+)/opt/gpudask/", re.MULTILINE)
_PROGRAM = """
import pkgutil
from importlib import import_module

import gpudask

for name in gpudask.__all__:
    getattr(gpudask, name)
for module in pkgutil.walk_packages(gpudask.__path__, "gpudask."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
print(gpudask.__file__)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], tuple[Path, Ran]]:
    """The program beside what is copied of the package, and where that is; once for images that copy the same."""

    @cache
    def run(copied: frozenset[str]) -> tuple[Path, Ran]:
        folder = tmp_path_factory.mktemp("opt")
        for source in map(Path, copied):
            target = folder / "gpudask" / source.name
            target.parent.mkdir(exist_ok=True)
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            copy(ROOT / source, target)
        command, environment = [sys.executable, "-P", "-c", _PROGRAM], {"PYTHONPATH": str(folder)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return folder, done

    return run


@pytest.mark.program
@pytest.mark.parametrize("image", ["dask", "dask-cpu", "dask-rapids"])
def test_a_program_in_a_pod_has_all_that_the_client_imports(
    image: str, ran: Callable[[frozenset[str]], tuple[Path, Ran]]
):
    copied = _COPIED.findall((ROOT / "images" / image / "Containerfile").read_text())
    folder, done = ran(frozenset(name for line in copied for name in line.split()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "gpudask" / "__init__.py")
