"""The preload on a real scheduler with real workers, all in this process, and real HTTP."""

import contextlib

import dask
import distributed
import pytest

from .cluster import Cluster, digest


def pytest_report_header():
    return f"distributed {distributed.__version__}"


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Return a coroutine function that starts a cluster; everything it started is closed after the test."""
    dask.config.set({"distributed.worker.memory.pause": False, "distributed.worker.memory.spill": False})
    monkeypatch.setenv("GPUDASK_TOKEN_SHA256_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(f"{digest('secret')}\n")
    async with contextlib.AsyncExitStack() as stack:

        async def start_cluster(**kwargs):
            cluster = Cluster(tmp_path, **kwargs)
            await cluster.start()
            stack.push_async_callback(cluster.close)
            return cluster

        yield start_cluster
