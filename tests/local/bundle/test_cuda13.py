"""RMM and UCX in a bundle: whole, and where pods and tests look for them, if they were packed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from local.bundle.activation import PYTHON, worker_sites
from local.bundle.packing.wheel_sets import FOR_CUDA13, FOR_RAPIDS, _edit
from local.layout import REPOSITORY


def locked(name: str) -> dict[str, str]:
    """The versions in a lock file, by package."""
    lines = (REPOSITORY / "requirements" / f"{name}.lock").read_text().splitlines()
    rows = (line.split(";")[0].split("\\")[0].strip().partition("==") for line in lines if line[:1].isalnum())
    return {package: version for package, _, version in rows}


def wheel(directory: Path, module: str) -> None:
    directory.mkdir(parents=True)
    with zipfile.ZipFile(directory / f"{module}-1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}.py", "")


def test_nothing_that_they_need_is_missing_beside_the_workers_packages():
    mine, workers = locked("dask-cu13"), locked("dask")
    assert set(mine) >= FOR_CUDA13
    assert set(mine) - FOR_CUDA13 <= set(workers)
    dask = {"dask", "distributed"}
    assert {name: mine[name] for name in dask} == {name: workers[name] for name in dask}


@pytest.mark.parametrize("packed", [True, False])
def test_pods_get_them_where_they_were_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, packed: bool):
    monkeypatch.setenv("GPUDASK_CACHE_DIR", str(tmp_path / "cache"))
    wheel(tmp_path / "wheels" / f"workers-{PYTHON}", "dask")
    if packed:
        wheel(tmp_path / "wheels" / f"cuda13-{PYTHON}", "rmm")
    found = {path.name for place in worker_sites(tmp_path) for path in place.glob("*.py")}
    assert found == ({"dask.py", "rmm.py"} if packed else {"dask.py"})


def test_the_set_of_rapids_is_locked_and_has_the_releases_of_dask_that_the_workers_have():
    mine, workers = locked("rapids-cu13"), locked("dask")
    assert set(mine) >= FOR_RAPIDS
    assert {name: mine[name] for name in ("dask", "distributed", "dask-cuda")} == {
        name: workers[name] for name in ("dask", "distributed", "dask-cuda")
    }
    twelve = locked("rapids-cu12")
    assert {twelve[name.replace("cu13", "cu12")] for name in ("cudf-cu13", "rmm-cu13")} == {
        mine["cudf-cu13"],
        mine["rmm-cu13"],
    }


def test_a_reduced_wheel_lacks_tests_and_headers_of_cpp_but_not_those_that_kernels_are_compiled_with():
    edit = _edit(90)
    assert edit("cudf/tests/test_a.py", b"x") is None
    assert edit("libcudf/include/cudf/a.hpp", b"x") is None
    assert edit("numba_cuda/include/a.h", b"x") == b"x"
    assert edit("cudf/__init__.py", b"x") == b"x"
    assert edit("single.py", b"x") == b"x"
