"""docs/dataframes.md: its programs run in a mixed cluster, behind the real fence, and print what the page says."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, Status

import gpudask
from gpudask import has_gpu
from tests.docs.pages import Snippet, snippets
from tests.preload.cluster import GPU, Cluster, digest

pytestmark = pytest.mark.dask
PROGRAMS = [snippet for snippet in snippets("python") if snippet.page == "docs/dataframes.md"]
PRINTS = [snippet for snippet in snippets("text") if snippet.page == "docs/dataframes.md"]


@pytest.fixture
async def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The scheduler of a cluster with a CPU and a GPU worker, whose GPU pool takes annotated tasks only."""
    monkeypatch.setenv("GPUDASK_TOKEN_SHA256_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(f"{digest('secret')}\n")
    cluster = Cluster(tmp_path)
    await cluster.start()  # type: ignore[no-untyped-call]
    await cluster.add("cpu-0")
    await cluster.add("gpu-0")
    yield cluster.scheduler.address
    await cluster.close()  # type: ignore[no-untyped-call]


def test_there_are_programs():
    assert len(PROGRAMS) == len(PRINTS) == 2


@pytest.mark.parametrize(("program", "prints"), zip(PROGRAMS, PRINTS, strict=True), ids=str)
async def test_a_program_prints_what_the_page_says(
    address: str, monkeypatch: pytest.MonkeyPatch, program: Snippet, prints: Snippet
):
    class Reached:
        """What `Client` needs of a cluster manager."""

        scheduler_address = address
        status = Status.running

    @contextmanager
    def from_name(_: str) -> Any:
        yield Reached()

    def run() -> str:
        with redirect_stdout(StringIO()) as printed, warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*query-planning")
            exec(compile(program.text, str(program), "exec"), {"__name__": "program"})  # noqa: S102
        return printed.getvalue()

    monkeypatch.setattr(gpudask.KubeCluster, "from_name", from_name)
    assert (await asyncio.to_thread(run)).strip() == prints.text.strip()


def where(part: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"gpu": [has_gpu()] * len(part)})


def built() -> Any:
    return dd.from_pandas(pd.DataFrame({"x": range(40)}), npartitions=4).map_partitions(where, meta={"gpu": bool})


def _in_block(_: Client) -> Any:
    frame = built()
    with dask.annotate(resources=GPU):
        return frame.compute()


def _persisted(_: Client) -> Any:
    frame = built()
    with dask.annotate(resources=GPU):
        kept = frame.persist()
    return kept.compute()


def _together(_: Client) -> Any:
    frame, other = built(), built()
    with dask.annotate(resources=GPU):
        return dask.compute(frame, other)[0]


def _after_block(_: Client) -> Any:
    with dask.annotate(resources=GPU):
        frame = built()
    return frame.compute()


@pytest.mark.parametrize(
    ("compute", "on_gpu"),
    [
        (_in_block, True),
        (_persisted, True),
        (_together, True),
        (lambda _: built().compute(resources=GPU), True),
        (lambda client: client.compute(built(), resources=GPU).result(), True),
        (_after_block, False),
    ],
    ids=["in the block", "persist", "dask.compute", "compute(resources=)", "client.compute", "after the block"],
)
async def test_the_tables_rows(address: str, compute: Callable[[Client], Any], on_gpu: bool):
    def run() -> set[bool]:
        with Client(address) as client, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return set(compute(client)["gpu"])

    assert await asyncio.to_thread(run) == {on_gpu}
