"""A program without a GPU on a cluster of one: its client part runs beside the data, from zero, and its pod ends."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.space import Space

STAND_IN = Path(__file__).parents[1] / "preload" / "user_modules" / "device_frames.py"


def test_a_client_part_starts_the_only_gpu_and_leaves_it_to_its_tasks(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    monkeypatch.setenv("DEVICES", "none")
    monkeypatch.syspath_prepend(str(STAND_IN.parent))
    importlib.import_module(STAND_IN.stem)
    pool = gpu(env=[{"name": "DEVICES", "value": "some"}])
    pool["autoscale"] |= {"min": 0, "max": 1}
    config = {"gpudask": {"graphs": {"modules": [STAND_IN.stem]}}}
    space.apply(cluster("laptop", cpu(), pool, env=[{"name": "DEVICES", "value": "none"}], config=config))

    def program(rows: int) -> tuple[pd.DataFrame, int]:
        import dask.dataframe as dd  # noqa: PLC0415 - where it runs
        import device_frames  # noqa: PLC0415
        from distributed import get_client  # noqa: PLC0415

        made = device_frames.DeviceFrame(pd.DataFrame({"k": [n % 2 for n in range(rows)], "v": range(rows)}))
        sums = dd.from_pandas(made, npartitions=3).groupby("k").v.sum().compute()
        on_gpu = get_client().submit(len, range(rows), resources={"GPU": 1})
        return device_frames.to_host(sums.to_frame()).sort_index(), on_gpu.result()

    with KubeCluster.from_name("laptop", namespace=space.kubectl.namespace) as found, Client(found) as client:
        client.upload_file(str(STAND_IN))
        sums, n = found.run_on_gpu(program, 10)
        assert (sums.v.tolist(), n) == ([20, 25], 10)

        def device_frame() -> object:
            import device_frames  # noqa: PLC0415 - where it runs

            return device_frames.to_device(pd.DataFrame({"v": [1]}))

        with pytest.raises(KubeClusterError, match="to_pandas"):
            found.run_on_gpu(device_frame)
    space.wait_pods("laptop", "gpu", 0)
