"""Runners' pods are read as hostile input: whatever JSON comes, a value or an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api.resource import Identity
from gpudask.jobs.runner_pods import is_of_earlier, parse_runner_pod
from gpudask.jobs.status import last_lines
from gpudask.planning.observed.fields import UnreadableError

OWNER = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskJob", "name": "sums", "uid": "u", "controller": True}


def a_pod(status: Any = None, **spec: Any) -> dict[str, Any]:
    """A runner's pod as the API server has it."""
    metadata = {"uid": "p", "name": "sums-runner-1", "namespace": "lab", "resourceVersion": "7"}
    known = {"containers": [{"name": "runner"}, {"name": "other"}]}
    return {"metadata": metadata | {"ownerReferences": [OWNER]}, "spec": known | spec, "status": status or {}}


def _ended(code: int, **more: Any) -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "runner", "state": {"terminated": {"exitCode": code, **more}}}],
    }


@pytest.mark.parametrize(
    ("owners", "is_earlier"),
    [
        ([OWNER], False),
        ([OWNER | {"uid": "earlier"}], True),
        ([OWNER | {"uid": "earlier", "name": "other"}], False),
        ([OWNER | {"uid": "earlier", "controller": False}], False),
        ([OWNER | {"uid": "earlier", "kind": "Job"}], False),
        ([OWNER | {"uid": ["earlier"]}], False),
        ("earlier", False),
    ],
)
def test_what_an_earlier_job_of_the_name_made(owners: Any, is_earlier: bool):
    metadata = {"name": "sums-runner-1", "namespace": "lab", "ownerReferences": owners}
    assert is_of_earlier(metadata, Identity("sums", "lab", "u")) == is_earlier


def test_its_first_container_is_the_program():
    found = parse_runner_pod(a_pod(_ended(3, reason="Error", message="why")))
    assert (found.container, found.ended, found.exit_code, found.reason, found.message) == (
        "runner",
        True,
        3,
        "Error",
        "why",
    )
    other = {"containerStatuses": [{"name": "other", "state": {"terminated": {"exitCode": 1}}}]}
    assert not parse_runner_pod(a_pod(other)).ended


def test_it_waits_at_our_gate_alone():
    assert parse_runner_pod(a_pod(schedulingGates=[{"name": "gpudask.dev/recorded"}])).gated
    assert not parse_runner_pod(a_pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])).gated


def test_a_pod_that_its_node_refused_never_ran_and_one_that_was_evicted_may_have():
    refused = parse_runner_pod(a_pod({"phase": "Failed", "reason": "OutOfcpu"}, nodeName="n"))
    assert refused.never_ran
    evicted = parse_runner_pod(a_pod({"phase": "Failed", "reason": "Evicted"}, nodeName="n"))
    assert evicted.ended
    assert not evicted.never_ran


@pytest.mark.parametrize(
    "fault",
    [{"kind": "Pod"}, {"apiVersion": "v1"}, {"apiVersion": "other.dev/v1"}, {"controller": False}],
)
def test_only_a_job_that_controls_a_pod_owns_it(fault: dict[str, Any]):
    body = a_pod()
    body["metadata"]["ownerReferences"] = [OWNER | fault]
    assert parse_runner_pod(body).owner == ""
    assert parse_runner_pod(a_pod()).owner == "lab/u"


@pytest.mark.parametrize(
    "said",
    [
        {"reason": "OutOfnvidia.com/gpu"},
        {"reason": "UnexpectedAdmissionError"},
        {"reason": "TaintToleration"},
        {"reason": "Evicted", "message": "Pod was rejected: The node had condition: [DiskPressure]. "},
    ],
)
def test_whatever_a_node_refuses_a_pod_for_it_never_ran(said: dict[str, str]):
    assert parse_runner_pod(a_pod({"phase": "Failed", **said}, nodeName="n")).never_ran


def test_a_program_cannot_say_that_it_never_ran():
    hostile = _ended(1, reason="OutOfcpu", message="Pod was rejected: ")
    assert not parse_runner_pod(a_pod(hostile, nodeName="n")).never_ran


def test_a_pod_goes_on_after_its_program_where_another_container_does():
    found = parse_runner_pod(a_pod(_ended(0)))
    assert (found.ended, found.finished, found.stopping) == (True, False, False)
    assert parse_runner_pod(a_pod(_ended(0), activeDeadlineSeconds=1)).stopping


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["containers", "schedulingGates", "nodeName"]), _JSON, _JSON)
def test_whatever_comes_it_is_read_or_refused(field: str, value: Any, status: Any):
    for body in (a_pod(**{field: value}), a_pod() | {"status": status}, a_pod() | {"metadata": value}):
        try:
            parse_runner_pod(body)
        except UnreadableError:
            continue


@given(st.text())
def test_last_lines_are_few_and_small(text: str):
    found = last_lines(text * 50)
    assert len(found.split("\n")) <= 20
    assert len(found.encode()) <= 4096
