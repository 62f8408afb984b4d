"""The Python packages in a bundle: what `local` itself runs with, the operator's, and what Dask's pods lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from local.bundle.packing.device_code import only_architecture
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

FOR_RAPIDS = {
    *("cudf-cu13", "dask-cudf-cu13", "libcudf-cu13", "pylibcudf-cu13", "libkvikio-cu13", "nvidia-libnvcomp-cu13"),
    *("rmm-cu13", "librmm-cu13", "rapids-logger", "rapids-dask-dependency", "nvtx", "cachetools"),
    *("numba", "llvmlite", "numba-cuda", "numba-cuda-mlir", "cuda-bindings", "cuda-core", "cuda-pathfinder"),
    *("numpy", "pandas", "python-dateutil", "pyarrow", "xgboost-cu13"),
}
"""cuDF, dask_cudf and XGBoost with what they import, but for CuPy and CUDA's libraries: those are the target's own."""

RAPIDS_PYTHON = "3.12"
RAPIDS_ARCHITECTURE = 90
"""Hopper's, H100 and H200: the code for other GPUs is left out, 240 of 370 MB of libcudf."""

_REDUCED = ("libcudf_cu13", "xgboost_cu13")
"""Wheels whose licence, Apache's, allows it."""

_HEADERS_UNUSED = {"libcudf", "librmm", "libkvikio", "pyarrow"}
"""Packages whose headers serve C++ programs alone. Numba and CuPy compile kernels with theirs."""


def wheel_items(steps: Steps, *, cuda13: bool = False, rapids: bool = False) -> Iterator[Item]:
    """Fetch the three sets for each version of Python; with `cuda13` a fourth, RMM and UCX; with `rapids` cuDF's."""
    if rapids:
        wheels = fetch_wheels(rapids_lock(), steps, python=RAPIDS_PYTHON)
        yield from _stored(wheels, f"rapids-{RAPIDS_PYTHON}", architecture=RAPIDS_ARCHITECTURE)
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


def rapids_lock() -> Path:
    """Write the lock file of cuDF and XGBoost with what the target lacks."""
    return _excerpt("rapids-cu13", "rapids", lambda name: name in FOR_RAPIDS)


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


def _stored(wheels: Path, name: str, *, architecture: int | None = None) -> Iterator[Item]:
    directory = wheels.with_name(f"{wheels.name}.stored")
    directory.mkdir(exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        if not (directory / wheel.name).exists():
            reduced = architecture if wheel.name.startswith(_REDUCED) else None
            store_wheel(wheel, directory / f"{wheel.name}.new", _edit(reduced))
            (directory / f"{wheel.name}.new").replace(directory / wheel.name)
        archive = f"wheels-{name.partition('-')[0]}"
        # RAPIDS' are large: each is an archive of its own, compressed and unpacked side by side.
        yield Item(
            f"wheels/{name}/{wheel.name}",
            f"{archive}-{wheel.stem}" if architecture else archive,
            directory / wheel.name,
        )


def _edit(architecture: int | None) -> Callable[[str, bytes], bytes | None]:
    """What of a wheel is stored: for one architecture neither headers nor tests, and its GPU code alone."""
    if architecture is None:
        return lambda _, content: content

    def reduced(name: str, content: bytes) -> bytes | None:
        top, *folders = name.split("/")[:-1] or [""]
        if "tests" in folders or ("include" in folders and top in _HEADERS_UNUSED):
            return None
        return only_architecture(content, architecture) if ".so" in name else content

    return reduced
