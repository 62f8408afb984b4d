"""docs/gpu.md, "Data frames of cuDF": its program, with a stand-in for cuDF that works on GPU workers alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, SpecCluster, get_worker

from gpudask import KubeCluster
from tests.docs.pages import snippets
from tests.examples.conftest import start

pytestmark = pytest.mark.dask
CPU_WORKER, GPU_WORKER = "demo-cpu-worker-0-aaaaa", "demo-gpu-worker-0-bbbbb-0"


class Frame(pd.DataFrame):
    """Rows "on the device": what is computed of them is there, too, and they can be unpacked nowhere else."""

    @property
    def _constructor(self) -> Any:
        return Frame

    @property
    def _constructor_sliced(self) -> Any:
        return Series

    def __setstate__(self, state: Any) -> None:
        needs_a_gpu()
        super().__setstate__(state)


class Series(pd.Series):
    """A column of it."""

    @property
    def _constructor(self) -> Any:
        return Series

    @property
    def _constructor_expanddim(self) -> Any:
        return Frame

    def __setstate__(self, state: Any) -> None:
        needs_a_gpu()
        super().__setstate__(state)

    def to_pandas(self) -> pd.Series:
        needs_a_gpu()
        return pd.Series(self)


def needs_a_gpu() -> None:
    try:
        name = get_worker().name
    except ValueError:
        name = "the program or the scheduler"
    if name != GPU_WORKER:
        raise RuntimeError(f"cudaErrorNoDevice in {name}")


def from_pandas(frame: pd.DataFrame) -> Frame:
    needs_a_gpu()
    return Frame(frame)


def is_on_the_device(frame: Any) -> pd.DataFrame:
    return pd.DataFrame({"is": [isinstance(frame, Frame)]})


@pytest.fixture
def cluster() -> Iterator[SpecCluster]:
    with start({CPU_WORKER: {}, GPU_WORKER: {"GPU": 1}}) as cluster:
        yield cluster


def test_the_program_needs_a_gpu_on_gpu_workers_alone(
    cluster: SpecCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cudf = ModuleType("cudf")
    cudf.from_pandas = from_pandas  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setattr(KubeCluster, "from_name", lambda _: cluster)
    frames = [each for each in snippets("python") if each.text.startswith("# frames.py\n")]
    [program] = [each for each in frames if each.page.endswith("gpu.md")]
    prints = next(each for each in snippets("text") if each.page == program.page and each.line > program.line)
    exec(compile(program.text, str(program), "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == prints.text


def test_rows_that_are_shuffled_by_tasks_stay_on_the_device(cluster: SpecCluster) -> None:
    """As the page advises. Dask's other method makes frames of the described kind."""
    table = pd.DataFrame({"key": [n % 7 for n in range(700)], "value": range(700)})
    described = pd.DataFrame({"is": [True]})
    with Client(cluster) as client, dask.config.set({"dataframe.shuffle.method": "tasks"}):
        frame = dd.from_pandas(table, npartitions=4)
        moved = frame.map_partitions(from_pandas, meta=frame, enforce_metadata=False).shuffle("key")
        seen = moved.map_partitions(is_on_the_device, meta=described, enforce_metadata=False)
        with dask.annotate(resources={"GPU": 1}):
            found = seen.compute(scheduler=client)
    assert list(found["is"]) == [True] * 4
