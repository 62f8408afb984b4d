"""Frames that need a device, as cuDF's do, beside a scheduler that has none: the GPU pool starts for them, and ends."""

from __future__ import annotations

import importlib
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import futures_of

from gpudask_e2e import ends, record

from gpudask.kubecluster.display import pool_of
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

STAND_IN = Path(__file__).parents[1] / "preload" / "user_modules" / "device_frames.py"
FRAME = pd.DataFrame({"k": [n % 7 for n in range(700)], "v": [float(n) for n in range(700)]})


@pytest.mark.parametrize("method", ["tasks", "p2p"])
def test_frames_start_the_gpu_pool_from_zero_and_are_right(
    space: Space, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.syspath_prepend(str(STAND_IN.parent))
    device_frames = importlib.import_module(STAND_IN.stem)
    space.apply(
        cluster(
            "frames",
            cpu(),
            gpu(env=[{"name": "DEVICES", "value": "some"}]),
            env=[{"name": "DEVICES", "value": "none"}],
            config={"gpudask": {"graphs": {"modules": [STAND_IN.stem]}}},
        )
    )
    space.wait_workers("frames", "cpu", 1)
    with space.client("frames") as client, dask.config.set({"dataframe.shuffle.method": method}):
        client.upload_file(str(STAND_IN))
        record(client)
        frame = dd.from_pandas(device_frames.DeviceFrame(FRAME), npartitions=4)
        kept = frame.shuffle("k").persist()
        found = kept.groupby("k").v.sum().compute().sort_index()
        assert found.tolist() == FRAME.groupby("k").v.sum().tolist()
        keys = [future.key for future in futures_of(kept)]
        assert {pool_of(worker, "frames") for workers in ends(client, keys).values() for worker in workers} == {"gpu"}
        del kept, frame
    space.wait_pods("frames", "gpu", 0)
