"""The Python packages in a bundle: what `local` itself runs with, the operator's, and what Dask's pods lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from local.bundle.packing.writing import Item
from local.bundle.wheel_files import store_wheel
from local.host.progress import Steps
from local.images.wheels import fetch_wheels
from local.layout import REPOSITORY, cache_dir

PYTHONS = ("3.11", "3.12")
"""The versions of Python that the target may have."""

_LOCKS = REPOSITORY / "requirements"
TOOLS = {
    *("typer", "shellingham", "annotated-doc"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection"),
    *("rich", "pygments", "markdown-it-py", "mdurl"),
    *("pyyaml", "cryptography", "cffi", "pycparser"),
}
"""What `python -m local` imports, with what that needs in turn."""

_THE_TARGETS_OWN = {
    *("numpy", "pandas", "pyarrow", "cuda-bindings", "cuda-core", "cuda-pathfinder"),
    *("bokeh", "contourpy", "pillow", "narwhals", "xyzservices"),
}
"""What takes most of a Dask image. The first row comes with whatever a GPU machine computes with; the rest draws."""

FOR_CUDA13 = {
    *("rmm-cu13", "librmm-cu13", "rapids-logger"),
    *("distributed-ucxx-cu13", "ucxx-cu13", "libucxx-cu13", "libucx-cu13"),
}
"""RMM, and UCX as a protocol of Dask: what GPU pools may ask for beside the workers' set."""


def wheel_items(steps: Steps, *, cuda13: bool = False) -> Iterator[Item]:
    """Fetch the three sets for each version of Python; with `cuda13` a fourth, RMM and UCX."""
    for python in PYTHONS:
        if cuda13:
            yield from _stored(fetch_wheels(cuda13_lock(), steps, python=python), f"cuda13-{python}")
        operator = fetch_wheels(_LOCKS / "operator.lock", steps, python=python)
        tools = fetch_wheels(_excerpt("dev", "tools", lambda name: name in TOOLS), steps, python=python)
        workers = fetch_wheels(
            _excerpt("dask", "workers", lambda name: name not in _THE_TARGETS_OWN), steps, python=python
        )
        yield from _stored(operator, operator.name)
        yield from _stored(tools, f"tools-{python}")
        yield from _stored(workers, f"workers-{python}")


def cuda13_lock() -> Path:
    """Write the lock file of RMM and UCX alone."""
    return _excerpt("dask-cu13", "cuda13", lambda name: name in FOR_CUDA13)


def excerpt(lock: str, wanted: Callable[[str], bool]) -> str:
    """Keep those requirements of a lock file, with their hashes, whose name is `wanted`."""
    kept: list[str] = []
    keep = False
    for line in lock.splitlines(keepends=True):
        if line[:1].isalnum():
            keep = wanted(line.partition("==")[0].strip())
        if keep:
            kept.append(line)
    return "".join(kept)


def _excerpt(lock: str, name: str, wanted: Callable[[str], bool]) -> Path:
    path = cache_dir() / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(excerpt((_LOCKS / f"{lock}.lock").read_text(), wanted))
    return path


def _stored(wheels: Path, name: str) -> Iterator[Item]:
    directory = wheels.with_name(f"{wheels.name}.stored")
    directory.mkdir(exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        if not (directory / wheel.name).exists():
            store_wheel(wheel, directory / f"{wheel.name}.new")
            (directory / f"{wheel.name}.new").replace(directory / wheel.name)
        yield Item(f"wheels/{name}/{wheel.name}", f"wheels-{name.partition('-')[0]}", directory / wheel.name)
