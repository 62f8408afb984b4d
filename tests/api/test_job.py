"""GpuDaskJob: what its parser and the API server make of what people write."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gpudask.api.job import JobConditionType, UnreadableStatusError, parse_job, parse_job_status
from gpudask.api.resource import InvalidSpecError
from tests.kubectl import Kubectl


def a_job(**spec: Any) -> dict[str, Any]:
    """A job as people write it."""
    container = {"name": "runner", "args": ["python", "-c", "print(42)"]}
    return {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskJob",
        "metadata": {"name": "sums", "namespace": "lab", "uid": "uid-1", "generation": 3},
        "spec": {"runner": {"template": {"spec": {"containers": [container]}}}, "cluster": {"name": "demo"}} | spec,
    }


OWN = {"cluster": {"spec": {"image": "registry.example/dask:1", "pools": [{"name": "cpu", "replicas": 1}]}}}
EVERYTHING = a_job(
    suspend=True,
    retries=3,
    backoff="1m",
    failExitCodes=[3, 42],
    activeDeadline="1h",
    ttlAfterFinished="30m",
    keepCluster={"onSuccess": "1s", "onFailure": "1h"},
    **OWN,
)


def test_a_job_has_defaults():
    spec = parse_job(a_job()).spec
    assert (spec.suspend, spec.retries, spec.backoff_seconds, spec.fail_exit_codes) == (False, 0, 10.0, [])
    assert (spec.deadline_seconds, spec.ttl_seconds, spec.keep_seconds(succeeded=False)) == (None, None, 0.0)


def test_a_cluster_of_its_own_has_the_jobs_name_and_is_kept_as_it_is_written():
    job = parse_job(a_job(**OWN))
    assert (job.has_own_cluster, job.cluster_name, job.cluster_body) == (True, "sums", OWN["cluster"]["spec"])
    other = parse_job(a_job())
    assert (other.has_own_cluster, other.cluster_name, other.cluster_body) == (False, "demo", {})


def test_durations_that_no_time_can_be_moved_by_are_bounded():
    spec = parse_job(a_job(ttlAfterFinished="9" * 25 + "h")).spec
    assert spec.ttl_seconds is not None
    assert spec.ttl_seconds < 1e9


@pytest.mark.parametrize("spec", [None, [], "x", {}, {"runner": 3}, {"cluster": {"spec": 1}}, {"runner": {}}])
def test_whatever_spec_is_stored_is_read_or_refused_in_words(spec: Any):
    with pytest.raises(InvalidSpecError, match="spec"):
        parse_job(a_job() | {"spec": spec})


def test_a_template_without_end_is_refused_before_anything_is_made_of_it():
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(InvalidSpecError, match=r"spec\.runner: nested"):
        parse_job(a_job(runner={"template": {"spec": deep}}))
    with pytest.raises(InvalidSpecError, match=r"spec\.cluster\.spec\.config: nested"):
        parse_job(a_job(cluster={"spec": {"config": deep, "pools": []}}))


@pytest.mark.parametrize("name", ["../../theirs/gpudaskclusters/x", ".", "..", "a/b", "x?y", "x%2fy", "x#y", "X"])
def test_the_cluster_that_a_job_uses_has_a_clusters_name(name: str):
    """The operator asks for it by a path, with rights in all namespaces."""
    with pytest.raises(InvalidSpecError, match=r"spec\.cluster\.name"):
        parse_job(a_job(cluster={"name": name}))


_RAN = {"attempts": 3, "failures": 1, "runner": {"pod": "sums-runner-3", "uid": "u", "endedAt": ""}}


@pytest.mark.parametrize("status", [None, {}])
def test_a_job_without_a_status_has_run_nothing(status: Any):
    assert parse_job_status(a_job() | {"status": status}).attempts == 0


@pytest.mark.parametrize(
    "status",
    [
        [],
        "x",
        {"attempts": "many"},
        {"attempts": 10**9},
        {"runner": {"uid": 3}},
        {"runner": {"uid": "u" * 300}},
        {"runner": {"endedAt": "late " * 20}},
        {"conditions": 7},
        {"conditions": [{"type": "Complete", "status": "Perhaps"}]},
    ],
)
def test_a_status_that_does_not_say_what_has_run_is_refused(status: Any):
    """Read as empty it would run the program again."""
    with pytest.raises(UnreadableStatusError, match="status"):
        parse_job_status(a_job() | {"status": status})


@pytest.mark.parametrize(
    "longer",
    [
        {"message": "m" * 10_000},
        {"phase": "p" * 100},
        {"reason": 7},
        {"runner": _RAN["runner"] | {"lastLines": "l" * 10_000}},
        {"runner": _RAN["runner"] | {"reason": "r" * 1000, "exitCode": "unknown"}},
        {"conditions": [{"type": "Failed", "status": "False", "message": "m" * 10_000}]},
        {"conditions": [{"type": f"Other{n}", "status": "True"} for n in range(40)]},
        {"conditions": [{"type": "Failed", "status": "False"}, "other"]},
    ],
)
def test_of_a_status_that_a_newer_definition_wrote_longer_what_has_run_is_read(longer: dict[str, Any]):
    found = parse_job_status(a_job() | {"status": _RAN | longer})
    assert (found.attempts, found.failures, found.runner.uid, found.has_ended) == (3, 1, "u", False)


def test_the_end_of_a_job_is_read_whatever_else_its_status_has():
    conditions = [{"type": f"Other{n}", "status": "True"} for n in range(40)] + [{"type": "Complete", "status": "True"}]
    assert parse_job_status(a_job() | {"status": {"conditions": conditions}}).has_ended


def test_a_job_has_ended_by_its_conditions_alone():
    ended = parse_job_status({"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
    assert ended.has_ended
    assert ended.holds(JobConditionType.FAILED)
    assert not parse_job_status({"status": {"phase": "Failed"}}).has_ended


def _create(kubectl: Kubectl, body: dict[str, Any]) -> dict[str, Any]:
    written = body | {"metadata": {"name": body["metadata"]["name"]}}
    made = kubectl("create", "--validate=strict", "-o", "json", "-f", "-", stdin=yaml.safe_dump(written))
    return dict(json.loads(made.stdout))


@pytest.mark.api
def test_a_job_with_every_field_is_accepted_and_read_as_it_was_written(in_namespace: Kubectl):
    body = _create(in_namespace, EVERYTHING)
    assert parse_job(body).spec == parse_job(EVERYTHING | {"metadata": body["metadata"]}).spec


@pytest.mark.api
def test_the_columns_tell_the_state_and_kubectl_waits_for_the_end(in_namespace: Kubectl):
    _create(in_namespace, a_job())
    status = {
        "observedGeneration": 1,
        "phase": "Complete",
        "reason": "RunnerSucceeded",
        "attempts": 1,
        "cluster": "demo",
        "conditions": [{"type": "Complete", "status": "True", "reason": "RunnerSucceeded"}],
        "runner": {"pod": "sums-runner-1", "exitCode": 0},
    }
    patch = json.dumps({"status": status})
    in_namespace("patch", "gdj", "sums", "--subresource=status", "--type=merge", "-p", patch)
    head, row = in_namespace("get", "gdj").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "ATTEMPTS", "EXIT", "STARTED", "AGE"]
    assert row.split()[:4] == ["sums", "Complete", "1", "0"]
    in_namespace("wait", "--for=condition=Complete", "gdj/sums", "--timeout=120s")
    assert "sums" in in_namespace("get", "dask").stdout
