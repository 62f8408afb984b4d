"""Programs of Prefect, Dagster, joblib, scikit-learn, XGBoost and LightGBM on clusters of ours.

docs/integrations.md has an example of each, and the versions of this environment.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.rights import documented_rules
from tests.e2e.integrations.packages import start, with_packages
from tests.e2e.manifests import cpu, gpu
from tests.e2e.space import Space

pytestmark = [
    pytest.mark.alone,  # an orchestrator takes half a minute of a core before it begins
    pytest.mark.local_cluster("pods mount this machine's directories"),
    pytest.mark.pod_security("privileged"),  # hostPath is of no stricter level
    pytest.mark.registry,
]

_SECONDS = 420
_GPU_POD = {"autoscale": {"min": 0, "max": 1}}


def test_a_prefect_flow_makes_its_cluster_runs_a_task_on_a_gpu_worker_and_leaves_nothing(space: Space) -> None:
    options = {"custom_cluster_spec": with_packages("flow", cpu(), gpu(**_GPU_POD)), "name": "flow", "timeout": 240}
    adapted = {"minimum": 1, "maximum": 2, "pool": "cpu"}
    program = start(
        space,
        "prefect_flow.py",
        "gpudask.KubeCluster",
        json.dumps(options),
        json.dumps(adapted),
        rules=documented_rules(),
    )
    seen = program.lines(seconds=_SECONDS)
    assert seen["total"] == "12"
    assert re.match(r"flow-cpu-worker-\d", seen["plain task"])
    assert re.match(r"flow-gpu-worker-\d", seen["GPU task"])
    space.wait(lambda: not space.get("gdc"), "the flow's cluster is gone", seconds=120)


def test_a_dagster_job_runs_a_step_with_the_tag_of_a_gpu_on_a_gpu_worker(space: Space, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)  # pods have a user of their own
    space.apply(with_packages("steps", cpu(), gpu(**_GPU_POD), shared=tmp_path))
    space.wait_ready("steps", seconds=240)
    program = start(space, "dagster_job.py", "steps", rules=documented_rules(), shared=tmp_path)
    seen = program.lines(seconds=_SECONDS)
    assert seen["success"] == "True"
    assert re.match(r"12 on steps-cpu-worker-\d", seen["plain"])
    assert re.match(r"12 on steps-gpu-worker-\d", seen["on_gpu"])
    assert seen["last"] == "last"


def test_libraries_compute_by_their_own_interfaces_to_dask(space: Space) -> None:
    space.apply(with_packages("libraries", cpu(replicas=2, nthreads=1)))
    space.wait_ready("libraries", seconds=240)
    seen = start(space, "libraries.py", "libraries", rules=documented_rules()).lines(seconds=_SECONDS)
    assert seen["joblib"] == "[0, 2, 4, 6, 8, 10, 12, 14] True"
    score, _, candidates = seen["scikit-learn"].partition(" ")
    assert float(score) > 0.9
    assert candidates == "3"
    assert float(seen["xgboost"]) > 0.9
    assert float(seen["lightgbm"]) > 0.9
    assert seen["adapt"] == "1 2 3"
