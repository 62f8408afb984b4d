"""What the Dask images carry of the package is all that programs and tasks in their pods import."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("image", ["dask", "dask-cpu", "dask-rapids"])
def test_a_program_in_a_pod_has_all_that_the_client_imports(image: str, tmp_path: Path):
    copied = _COPIED.findall((ROOT / "images" / image / "Containerfile").read_text())
    for source in (Path(name) for line in copied for name in line.split()):
        target = tmp_path / "gpudask" / source.name
        target.parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, target)
    command, environment = [sys.executable, "-P", "-c", _PROGRAM], {"PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(tmp_path / "gpudask" / "__init__.py")
