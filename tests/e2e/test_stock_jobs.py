"""A DaskJob as the stock operator's users write it runs a real program, and its cluster is given back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec

from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.pod_security("baseline"),  # the stock operator's pods may run as root
]
# What the stock client says nothing of gets the operator's defaults, a core for a worker: small nodes have no room.
_SMALL = {"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
_ANSWER = "from distributed import Client; print('the answer is', Client().submit(sum, [40, 2]).result(timeout=240))"


def _dask_job(name: str, program: str) -> dict[str, Any]:
    image = cluster(name, cpu(replicas=1))["spec"]["image"]
    runner = {"name": "job", "image": image, "args": ["python", "-c", program], "resources": _SMALL}
    spec = copy.deepcopy(make_cluster_spec(name, image=image, n_workers=1, resources=_SMALL)["spec"])
    job = {"spec": {"restartPolicy": "Never", "containers": [runner]}}
    body = {"job": job, "cluster": {"spec": spec}}
    return {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob", "metadata": {"name": name}, "spec": body}


def _status(space: Space, name: str) -> dict[str, Any]:
    return dict(space.find("daskjobs", name).get("status", {}))


def _ends(space: Space, name: str, word: str) -> dict[str, Any]:
    """Wait until the DaskJob has ended, and its cluster is gone; its status."""

    def ended() -> bool:
        return _status(space, name).get("jobStatus") in ("Successful", "Failed")

    space.wait(ended, f"the DaskJob {name} ends", seconds=400)
    status = _status(space, name)
    assert status["jobStatus"] == word, space.kubectl.attempt("logs", status.get("jobRunnerPodName", "")).stdout
    space.wait(lambda: space.get("gpudaskclusters") == [], "its cluster is deleted", seconds=120)
    return status


def test_a_dask_job_gives_its_answer_and_its_cluster_back(space: Space, mirror: None) -> None:
    space.apply(_dask_job("sums", _ANSWER))
    status = _ends(space, "sums", "Successful")
    assert status.keys() == {"jobStatus", "clusterName", "jobRunnerPodName", "startTime", "endTime"}
    assert "the answer is 42" in space.kubectl("logs", status["jobRunnerPodName"]).stdout
    space.kubectl("delete", "daskjob", "sums", "--wait=true")
    space.wait(lambda: space.get("gpudaskjobs") == [], "the job that served it is deleted", seconds=120)


def test_a_dask_job_whose_program_fails_has_failed(space: Space, mirror: None) -> None:
    space.apply(_dask_job("fails", "raise SystemExit(7)"))
    _ends(space, "fails", "Failed")
