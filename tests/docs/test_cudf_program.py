"""docs/gpu.md, "Data frames of cuDF": its program, with a stand-in for cuDF that works on GPU workers alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from distributed import SpecCluster, get_worker

from gpudask import KubeCluster
from tests.docs.pages import snippets
from tests.examples.conftest import start

CPU_WORKER, GPU_WORKER = "demo-cpu-worker-0-aaaaa", "demo-gpu-worker-0-bbbbb-0"


class Frame(pd.DataFrame):
    """Rows "on the device": what is computed of them is there, too."""

    @property
    def _constructor(self) -> Any:
        return Frame

    @property
    def _constructor_sliced(self) -> Any:
        return Series


class Series(pd.Series):
    @property
    def _constructor(self) -> Any:
        return Series

    @property
    def _constructor_expanddim(self) -> Any:
        return Frame

    def to_pandas(self) -> pd.Series:
        needs_a_gpu()
        return pd.Series(self)


def needs_a_gpu() -> None:
    name = get_worker().name
    if name != GPU_WORKER:
        raise RuntimeError(f"cudaErrorNoDevice in {name}")


def from_pandas(frame: pd.DataFrame) -> Frame:
    needs_a_gpu()
    return Frame(frame)


@pytest.fixture
def cluster() -> Iterator[SpecCluster]:
    with start({CPU_WORKER: {}, GPU_WORKER: {"GPU": 1}}) as cluster:
        yield cluster


def test_what_touches_cudf_runs_on_gpu_workers(
    cluster: SpecCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cudf = ModuleType("cudf")
    cudf.from_pandas = from_pandas  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setattr(KubeCluster, "from_name", lambda _: cluster)
    (program,) = [each for each in snippets("python") if each.text.startswith("# frames.py\n")]
    exec(compile(program.text, str(program), "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == "the sum is 31996000\n"
