"""The pod of a job's runner, and the job's own cluster."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.resource import InvalidSpecError
from gpudask.desired.runner import cluster_hash, job_cluster, runner_pod
from tests.api.test_job import OWN
from tests.builders import a_pool
from tests.jobs.builders import job
from tests.planning.builders import cluster


def _rendered(spec: Any = None, metadata: Any = None, **of_cluster: Any) -> dict[str, Any]:
    container = {"name": "program", "args": ["python", "x.py"]}
    template = {"spec": {"containers": [container], **(spec or {})}, "metadata": metadata or {}}
    return runner_pod(job(runner={"template": template}), 2, cluster(a_pool(), **of_cluster))


def test_it_is_safe_by_default_and_never_restarted():
    spec = _rendered({"restartPolicy": "Always"})["spec"]
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    (container,) = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_what_it_asks_for_is_not_mixed_with_what_it_has_by_default():
    own = {"containers": [{"name": "program", "resources": {"requests": {"memory": "8Gi"}}}]}
    (container,) = _rendered(own)["spec"]["containers"]
    assert container["resources"] == {"requests": {"memory": "8Gi"}}


def test_it_has_what_the_workers_need_to_connect():
    mount = {"name": "certificates", "mountPath": "/tls"}
    volumes = [{"name": "certificates", "secret": {"secretName": "tls"}}]
    template = {"spec": {"volumes": volumes, "containers": [{"name": "dask", "volumeMounts": [mount]}]}}
    config = {"distributed": {"comm": {"tls": {"ca-file": "/tls/ca.crt"}}}}
    spec = _rendered(protocol="tls", template=template, config=config)["spec"]
    (container,) = spec["containers"]
    env = {item["name"]: item["value"] for item in container["env"]}
    assert (container["name"], container["volumeMounts"]) == ("program", [mount])
    assert spec["volumes"] == volumes
    assert env["DASK_SCHEDULER_ADDRESS"] == "tls://demo-scheduler.default.svc:8786"
    assert env["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] == "/tls/ca.crt"


def test_the_program_stays_first_and_the_clusters_other_containers_stay_out():
    template = {"spec": {"containers": [{"name": "meter", "image": "x"}]}}
    spec = _rendered({"containers": [{"name": "program"}, {"name": "own", "image": "y"}]}, template=template)["spec"]
    assert [item["name"] for item in spec["containers"]] == ["program", "own"]


def test_its_gate_is_there_beside_those_of_others():
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "gpudask.dev/recorded"}]
    assert _rendered({"schedulingGates": gates})["spec"]["schedulingGates"] == gates
    assert _rendered()["spec"]["schedulingGates"] == [{"name": "gpudask.dev/recorded"}]


def test_its_name_labels_and_owner_are_the_operators():
    forged = {"labels": {"gpudask.dev/pool": "gpu", "team": "a"}, "annotations": {"gpudask.dev/retire": "x"}}
    metadata = _rendered(metadata=forged)["metadata"]
    assert metadata["name"] == "sums-runner-2"
    labels = metadata["labels"]
    assert "gpudask.dev/pool" not in labels
    assert (labels["gpudask.dev/job"], labels["gpudask.dev/attempt"], labels["team"]) == ("sums", "2", "a")
    assert "gpudask.dev/retire" not in metadata.get("annotations", {})
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("GpuDaskJob", True)


def test_a_template_of_a_wrong_shape_names_its_place():
    with pytest.raises(ValueError, match=r"spec\.volumes"):
        _rendered({"volumes": "none"})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"volumes": "none"}, r"spec\.template\.spec\.volumes"),
        ({"containers": [{"name": "dask", "$patch": "delete"}]}, r"spec\.template\.spec\.containers"),
        ({"$patch": "delete"}, r"spec\.template\.spec\.containers"),
    ],
)
def test_a_clusters_template_that_leaves_no_container_is_the_clusters_fault(spec: Any, said: str):
    """It was a defect of the operator, again and again, or ended the job for ever as if its own template were wrong."""
    with pytest.raises(InvalidSpecError, match=said):
        _rendered(template={"spec": spec})


def test_a_jobs_cluster_is_what_was_written_under_the_jobs_name():
    of = job()
    made = job_cluster(of, 3)
    assert (made["metadata"]["name"], made["spec"]) == ("sums", OWN["cluster"]["spec"])
    assert made["metadata"]["labels"] == {"gpudask.dev/job": "sums", "gpudask.dev/attempt": "3"}
    assert made["metadata"]["annotations"] == {"gpudask.dev/spec-hash": cluster_hash(of)}
