"""A DaskJob as the stock operator's users write it runs a real program, and its cluster is given back."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec

from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space
from tests.e2e.unproven import unproven

pytestmark = [
    unproven("on the local cluster's two cores no node had room for its runner beside its cluster"),
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.pod_security("baseline"),  # the stock operator's pods may run as root
]
_ANSWER = "from distributed import Client; print('the answer is', Client().submit(sum, [40, 2]).result(timeout=120))"


def _dask_job(name: str, program: str) -> dict[str, Any]:
    image = cluster(name, cpu(replicas=1))["spec"]["image"]
    runner = {"name": "job", "image": image, "args": ["python", "-c", program]}
    spec = copy.deepcopy(make_cluster_spec(name, image=image, n_workers=1)["spec"])
    job = {"spec": {"restartPolicy": "Never", "containers": [runner]}}
    body = {"job": job, "cluster": {"spec": spec}}
    return {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskJob", "metadata": {"name": name}, "spec": body}


def _ends(space: Space, name: str, word: str) -> dict[str, Any]:
    space.kubectl("wait", f"--for=jsonpath={{.status.jobStatus}}={word}", f"daskjob/{name}", "--timeout=300s")
    status = dict(json.loads(space.kubectl("get", "daskjob", name, "-o", "json").stdout)["status"])
    space.wait(lambda: space.get("gpudaskclusters") == [], "its cluster is deleted")
    return status


def test_a_dask_job_gives_its_answer_and_its_cluster_back(space: Space, mirror: None) -> None:
    space.apply(_dask_job("sums", _ANSWER))
    status = _ends(space, "sums", "Successful")
    assert status.keys() == {"jobStatus", "clusterName", "jobRunnerPodName", "startTime", "endTime"}
    assert "the answer is 42" in space.kubectl("logs", status["jobRunnerPodName"]).stdout
    space.kubectl("delete", "daskjob", "sums", "--wait=true")
    space.wait(lambda: space.get("gpudaskjobs") == [], "the job that served it is deleted")


def test_a_dask_job_whose_program_fails_has_failed(space: Space, mirror: None) -> None:
    space.apply(_dask_job("fails", "raise SystemExit(7)"))
    _ends(space, "fails", "Failed")
