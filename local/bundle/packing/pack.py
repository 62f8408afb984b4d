"""`python -m local bundle`: gathers what `up` and `install` take, and writes it in parts."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipapp
from collections.abc import Iterator
from pathlib import Path

from local.bundle.manifest import Manifest
from local.bundle.packing.host_programs import host_items
from local.bundle.packing.notices import notices_item
from local.bundle.packing.wheel_sets import wheel_items
from local.bundle.packing.writing import BEST, Item, write_bundle
from local.errors import LocalClusterError
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import REPOSITORY, cache_dir
from local.programs.binaries import COREDNS, DEVICE_PLUGIN, HELM, KUBERNETES, ensure_binary
from local.programs.requirements import DEVICE_PLUGIN_BUILD, cluster_requirements, ensure_requirements
from local.programs.toolchain import find_go

_SOURCES = (
    "local",
    "operator/gpudask",
    "charts/gpudask",
    "crds",
    "requirements",
    "docs/offline.md",
    "images/notices.py",
    "LICENSE",
    "pyproject.toml",
)
_ALONE = (
    "__init__",
    "errors",
    "layout",
    "host/__init__",
    "host/lock",
    "bundle/__init__",
    "bundle/manifest",
    "bundle/verifying",
    "bundle/unpacking",
    "bundle/wheel_files",
    "bundle/activation",
    "bundle/start",
)
"""The modules of `local` that need the standard library alone."""

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_MAIN = """\
import sys
from pathlib import Path

from local.bundle.start import run_from_archive
from local.errors import LocalClusterError

try:
    run_from_archive(Path(sys.argv[0]), sys.argv[1:], sys.executable)
except LocalClusterError as error:
    sys.exit(f"Error: {error}")
"""


def pack(
    directory: Path,
    *,
    part_bytes: int,
    steps: Steps,
    preset: int = BEST,
    cuda13: bool = False,
    rapids: bool = False,
) -> Manifest:
    """Write a bundle into `directory`, in parts of at most `part_bytes` bytes, and `start.pyz` beside them.

    With `cuda13` RMM and UCX for CUDA 13 come along, for GPU pools that ask for them; with `rapids` cuDF and XGBoost.

    Raises:
        LocalClusterError: something cannot be built or fetched here; the text says what.
    """
    cache = cache_dir() / "bundles" / "archives"
    with exclusive(cache):  # another one would write the same files
        items = gather(steps, cuda13=cuda13, rapids=rapids)
        with steps.step(f"Compressing into {directory} (minutes, the first time)"):
            manifest = write_bundle(items, directory, part_bytes=part_bytes, preset=preset, cache=cache)
    write_start(directory / "start.pyz")
    return manifest


def gather(steps: Steps, *, cuda13: bool = False, rapids: bool = False) -> list[Item]:
    """Have everything that goes in on this machine: built, fetched, installed.

    Raises:
        LocalClusterError: something cannot be had here; the text says what.
    """
    ensure_requirements(cluster_requirements(), steps)
    ensure_requirements(DEVICE_PLUGIN_BUILD, steps)
    items = [*_programs(steps), *host_items(), *wheel_items(steps, cuda13=cuda13, rapids=rapids), *_sources()]
    return [*items, notices_item(items, find_go(steps).command)]


def write_start(target: Path) -> None:
    """Write the program that a machine without this checkout begins with: it unpacks the bundle beside it."""
    package = REPOSITORY / "local"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in _ALONE:
            module = root / "local" / f"{name}.py"
            module.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(package / f"{name}.py", module)
        (root / "__main__.py").write_text(_MAIN)
        zipapp.create_archive(root, target, compressed=True)


def parse_size(text: str) -> int:
    """Read a size in bytes, as in 48MiB.

    Raises:
        LocalClusterError: it is no size.
    """
    match = re.fullmatch(r"(\d+) ?(KiB|MiB|GiB|)", text.strip())
    if match is None:
        raise LocalClusterError(f"--size {text!r} is no size: write 48MiB, 1GiB or a number of bytes.")
    return int(match[1]) * _UNITS[match[2]]


def _programs(steps: Steps) -> Iterator[Item]:
    for program in (KUBERNETES, COREDNS, HELM, DEVICE_PLUGIN):
        binary = ensure_binary(program, steps)
        yield Item(f"bin/{binary.parent.name}/{binary.name}", program.module, binary, executable=True)


def _sources() -> Iterator[Item]:
    for place in _SOURCES:
        path = REPOSITORY / place
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield Item(f"source/{file.relative_to(REPOSITORY)}", "sources", file)
