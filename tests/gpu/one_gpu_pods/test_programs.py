"""Libraries on GPU workers: a Numba kernel, dask.array of CuPy blocks, and those of RAPIDS where they are installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gpudask_gpu
import pytest
from dask import annotate
from distributed import Client

from gpudask import KubeCluster
from tests.e2e.space import Space
from tests.gpu.one_gpu_pods.shared import NAME, Shared
from tests.gpu.workers import GPU, PATIENCE_SECONDS, needs, on, result

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "array_of_cupy.py"


def test_a_numba_kernel_runs(client: Client, workers: list[str]) -> None:
    needs("numba", "numba.cuda")
    assert result(on(client, workers[0], gpudask_gpu.by_numba)) == 0.0


def test_a_program_and_a_scheduler_without_gpu_compute_an_array_of_cupy(space: Space, workers: list[str]) -> None:
    """The program runs in the scheduler's pod, which has no device at all."""
    assert workers
    (scheduler,) = space.pods(NAME)
    (container,) = scheduler["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"].get("limits", {})
    name = scheduler["metadata"]["name"]
    printed = space.kubectl("exec", "-i", name, "--", sys.executable, "-", stdin=PROGRAM.read_text()).stdout
    told = json.loads(printed.splitlines()[-1])
    assert told["devices_here"] == 0
    assert told["blocks"] == ["cupy"]
    assert told["mean"] == pytest.approx(told["expected"], rel=1e-12)


def test_a_groupby_of_cudf_from_a_program_and_a_scheduler_without_gpu(client: Client, workers: list[str]) -> None:
    """What Dask knows of the frame's columns stays pandas': an empty frame of cuDF cannot be made without a device."""
    needs("cudf", "dask_cudf")
    import dask.dataframe as dd  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415

    assert workers
    table = pd.DataFrame({"key": [n % 7 for n in range(100_000)], "value": range(100_000)})
    frame = dd.from_pandas(table, npartitions=8)
    on_gpus = frame.map_partitions(gpudask_gpu.to_cudf, meta=frame, enforce_metadata=False)
    sums = on_gpus.groupby("key").value.sum()
    on_hosts = sums.map_partitions(gpudask_gpu.to_pandas, meta=sums, enforce_metadata=False)
    with annotate(resources=GPU):
        summed = on_hosts.compute(scheduler=client)
    assert summed.sort_index().to_dict() == table.groupby("key").value.sum().to_dict()


@pytest.mark.timeout(100)  # the hold has a limit of its own, which says more
def test_xgboost_trains_on_workers_that_are_held(shared: Shared) -> None:
    needs("xgboost")
    import dask.array as da  # noqa: PLC0415
    from xgboost import dask as boosting  # noqa: PLC0415
    from xgboost.callback import TrainingCallback  # noqa: PLC0415

    class Told(TrainingCallback):
        """Has the model say what it was trained on: as it is loaded here, where no GPU is, XGBoost makes that `cpu`."""

        def after_training(self, model: Any) -> Any:
            model.set_attr(trained_on=json.loads(model.save_config())["learner"]["generic_param"]["device"])
            return model

    space = shared.space
    place = {"namespace": space.kubectl.namespace, "kubeconfig": str(space.kubectl.kubeconfig), "quiet": True}
    generator = da.random.default_rng(7)
    features = generator.random((20_000, 8), chunks=(5_000, 8))
    with (
        KubeCluster.from_name(NAME, **place) as cluster,
        Client(cluster) as client,  # XGBoost waits with the default one
        cluster.hold("gpu", shared.gpus, timeout=PATIENCE_SECONDS) as workers,
        annotate(resources=GPU, workers=workers),
    ):
        data = boosting.DaskDMatrix(client, features, features[:, 0] * 2)
        options = {"device": "cuda", "tree_method": "hist"}
        words = {"num_boost_round": 20, "evals": [(data, "train")], "callbacks": [Told()]}
        trained = boosting.train(client, options, data, **words)
    assert trained["history"]["train"]["rmse"][-1] < 0.1
    # Where a worker finds no device it goes on without one, and says so only there.
    assert trained["booster"].attr("trained_on").startswith("cuda"), trained["booster"].attributes()
