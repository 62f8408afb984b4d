"""Whatever must not be seen during a takeover is said, also when it lasted for a moment."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ha import replica
from benchmarks.ha.observer import Audit, Observer, Request, extra
from gpudask.api.resource import ANNOTATION_DASK_NAME, LABEL_CLUSTER, LABEL_POOL
from gpudask.clients.lease import Record

CPU = "demo", "cpu"


@pytest.fixture
def observer() -> Observer:
    found = Observer(clock=lambda: 7.0)
    found.wanted = {CPU: 2}
    for number in range(2):
        found.see_pod(pod(number))
    return found


def pod(number: int, kind: str = "ADDED", *, uid: str = "", **metadata: Any) -> dict[str, Any]:
    name = f"demo-cpu-{number}"
    metadata |= {"name": name, "uid": uid or f"uid-{number}", "labels": {LABEL_CLUSTER: "demo", LABEL_POOL: "cpu"}}
    return {"type": kind, "object": {"metadata": {"annotations": {ANNOTATION_DASK_NAME: name}} | metadata}}


def counted(seconds: float) -> dict[str, Any]:
    pools = [{"name": "gpu", "gpuSecondsHeld": seconds}]
    return {"type": "MODIFIED", "object": {"metadata": {"name": "demo"}, "status": {"pools": pools}}}


def test_what_is_wanted_is_complete_and_right(observer: Observer):
    assert observer.complete
    observer.see_pod(pod(1, "MODIFIED"))  # the same pod, told of again
    observer.check()


def test_a_pod_beyond_what_is_wanted_is_one_too_many_even_when_it_goes_again(observer: Observer):
    observer.see_pod(pod(2))
    observer.released.add("uid-2")
    observer.see_pod(pod(2, "DELETED"))
    with pytest.raises(AssertionError, match="demo-cpu-2 is one too many"):
        observer.check()


def test_a_pod_that_the_operator_deletes_is_missed(observer: Observer):
    observer.see_pod(pod(1, "MODIFIED", deletionTimestamp="2026-11-23T10:00:00Z"))
    with pytest.raises(AssertionError, match="demo-cpu-1 was deleted"):
        observer.check()


def test_a_pod_that_we_delete_is_replaced_under_its_name(observer: Observer):
    observer.released.add("uid-1")
    observer.see_pod(pod(1, "DELETED"))
    assert not observer.complete
    observer.see_pod(pod(1, uid="another"))
    assert observer.complete
    assert observer.pods["another"].seen_at == 7.0
    observer.check()


def test_two_pods_with_one_dask_name_are_one_too_many(observer: Observer):
    observer.wanted = {CPU: 3}
    observer.see_pod(pod(1, uid="another"))
    with pytest.raises(AssertionError, match="the second with the Dask name demo-cpu-1"):
        observer.check()


def test_gpu_seconds_never_go_back(observer: Observer):
    for seconds in (0.0, 5.0, 5.0):
        observer.see_cluster(counted(seconds))
    observer.check()
    assert observer.gpu_seconds == 5.0
    observer.see_cluster(counted(4.9))
    with pytest.raises(AssertionError, match=r"demo/gpu went back from 5\.0 to 4\.9"):
        observer.check()


def test_a_lease_that_was_given_back_still_says_how_long_one_holds(observer: Observer):
    observer.see_lease(Record("first", 15, "", 0, "1"))
    observer.see_lease(Record("", 1, "", 0, "2"))
    assert (observer.holder, observer.lease_seconds, observer.held_since) == ("", 15, 7.0)


def test_requests_are_told_apart_by_the_token_of_each_operator(tmp_path: Path):
    def line(verb: str, resource: str, credential: str, name: str = "") -> str:
        user = {"username": "system:serviceaccount:gpudask-system:gpudask"}
        user |= {"extra": {"authentication.kubernetes.io/credential-id": [credential]}}
        return json.dumps({"verb": verb, "user": user, "objectRef": {"resource": resource, "name": name}}) + "\n"

    log = tmp_path / "audit.log"
    log.write_text(line("list", "pods", "JTI=a"))
    mark = Audit(log).mark()
    lines = [line("create", "pods", "JTI=a", "p"), line("watch", "pods", "JTI=a"), line("patch", "leases", "JTI=a")]
    log.write_text(log.read_text() + "".join([*lines, line("create", "pods", "JTI=b"), '{"verb": "cre']))
    found = Audit(log).since(mark)
    assert len(found) == 4, "the last line is not all there yet"
    assert extra(found, "JTI=a") == [Request("JTI=a", "create", "pods", "p")]


def test_a_credential_is_named_after_its_tokens_identity():
    claims = base64.urlsafe_b64encode(json.dumps({"jti": "1-2-3"}).encode()).decode().rstrip("=")
    assert replica.credential(f"head.{claims}.signature") == "JTI=1-2-3"


def test_the_environment_is_that_of_the_charts_container():
    found = replica.environment(replica.rendered(), {"name": "gpudask-x", "uid": "u"})
    assert found["GPUDASK_IDENTITY"] == "gpudask-x_u"
    assert (found["GPUDASK_NAMESPACE"], found["GPUDASK_LEASE"]) == ("gpudask-system", "gpudask")
