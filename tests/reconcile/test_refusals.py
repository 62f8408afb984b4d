"""What the API server refuses: reported with its message, retried in time, and without effect on other pools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpudask.api.resource import LABEL_POOL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.eventually import eventually, eventually_async
from tests.kubectl import Kubectl
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, operating, stays

pytestmark = pytest.mark.api


def quota(pods: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"requests.nvidia.com/gpu": str(pods)}},
    }


async def limit(stage: Stage, gpus: int) -> None:
    """A quota; its usage is a controller's figure, and none runs here."""
    if await stage.get("resourcequotas", "few") is None:
        await stage.create("resourcequotas", quota(gpus))
    else:
        await stage.patch("resourcequotas", "few", {"spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}}})
    hard = {"hard": {"requests.nvidia.com/gpu": str(gpus)}, "used": {"requests.nvidia.com/gpu": "0"}}
    await stage.patch("resourcequotas", "few/status", {"status": hard})


async def test_a_quota_holds_back_its_pool_alone_until_it_is_raised(stage: Stage, operator: Operator):
    await limit(stage, 1)
    await stage.apply(a_pool("gpu", gpu={}, replicas=3), a_pool("cpu", replicas=2))
    said = await stage.shows("Degraded", "QuotaExceeded")
    assert "exceeded quota: few, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1" in said
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0", "demo-cpu-worker-1"])
    assert len(await stage.names(pool="gpu")) == 1
    await limit(stage, 9)
    await stage.becomes(
        lambda: stage.names(pool="gpu"), [f"demo-gpu-worker-{n}" for n in range(3)], "no edit is needed"
    )
    await stage.shows("Ready", "True AllReady")
    await stage.shows("Degraded", "False Healthy")


TYPO: dict[str, Any] = {"spec": {"nodeSelecter": {"a": "b"}}}


@pytest.mark.parametrize("size", [{"replicas": 1}, {"replicas": 0}], ids=["needed", "at-zero"])
async def test_a_typo_in_a_template_is_told_with_its_path(stage: Stage, operator: Operator, size: dict[str, int]):
    await stage.apply(a_pool("odd", template=TYPO, **size), a_pool("cpu"))
    said = await stage.shows("Accepted", "False TemplateRefused")
    assert "pool odd: " in said
    assert 'unknown field "spec.nodeSelecter"' in said
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])
    assert await stage.names(pool="odd") == []
    await stage.apply(a_pool("odd", **size), a_pool("cpu"))
    await stage.shows("Accepted", "True Valid")
    await stage.becomes(lambda: stage.names(pool="odd"), ["demo-odd-worker-0"][: size["replicas"]])


@pytest.mark.parametrize("size", [{"replicas": 1}, {"replicas": 0}], ids=["needed", "at-zero"])
async def test_a_template_of_the_wrong_shape_is_told_too(stage: Stage, operator: Operator, size: dict[str, int]):
    await stage.apply(a_pool("odd", template={"spec": {"containers": {"name": "dask"}}}, **size), a_pool("cpu"))
    said = await stage.shows("Accepted", "False TemplateRefused")
    assert "pool odd: template.spec.containers: expected a list" in said
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])


async def test_a_typo_for_the_scheduler_is_told_and_mended_by_an_edit(stage: Stage, operator: Operator):
    await stage.apply(a_pool(), scheduler={"template": {"spec": {"containers": [{"name": "dask", "imagge": "x"}]}}})
    said = await stage.shows("Accepted", "False TemplateRefused")
    assert "scheduler: " in said
    assert "imagge" in said
    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")


async def test_a_typo_replaces_no_scheduler_that_runs(stage: Stage, operator: Operator):
    async def scheduler() -> list[str]:
        pods = await stage.list("pods")
        return [
            pod["metadata"]["uid"]
            for pod in pods
            if LABEL_POOL not in pod["metadata"]["labels"] and "deletionTimestamp" not in pod["metadata"]
        ]

    await stage.apply(a_pool())
    await stage.shows("Ready", "True AllReady")
    await (await stage.scheduler()).say()  # without a task it may be replaced at any time
    before = await scheduler()

    await stage.apply(a_pool(), template={"spec": {"tolerationz": []}})
    assert 'unknown field "spec.tolerationz"' in await stage.shows("Accepted", "False TemplateRefused")
    await stays(scheduler, before, 2.0)

    await stage.apply(a_pool(), template={"metadata": {"labels": {"team": "a"}}})
    await stage.shows("Accepted", "True Valid")
    await eventually_async(scheduler, lambda uids: len(uids) == 1 and uids != before, "the scheduler is replaced")
    await stage.shows("Ready", "True AllReady")


async def test_a_value_that_the_api_server_refuses_is_told(stage: Stage, operator: Operator):
    await stage.apply(a_pool("odd", template={"spec": {"restartPolicy": "Sometimes"}}))
    assert "spec.restartPolicy" in await stage.shows("Accepted", "False TemplateRefused")


async def test_a_priority_class_that_is_not_there_is_told(stage: Stage, operator: Operator):
    await stage.apply(a_pool("odd", template={"spec": {"priorityClassName": "none"}}), a_pool("cpu"))
    assert "no PriorityClass with name none was found" in await stage.shows("Degraded", "True Forbidden")
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])


@contextlib.contextmanager
def policy(kubectl: Kubectl, *denied: str) -> Iterator[None]:
    """A ValidatingAdmissionPolicy that denies the pods of these pools in the namespace, while it is heeded."""
    name = f"no-pods-in-{kubectl.namespace}"
    pools = f"has(object.metadata.labels) && '{LABEL_POOL}' in object.metadata.labels"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    denial = {
        "expression": f"!({pools} && object.metadata.labels['{LABEL_POOL}'] in {list(denied)})",
        "message": "ask the administrators",
        "reason": "Invalid",  # no 403: the operator has to know a policy by what the API server writes
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}}
    specs = {
        "ValidatingAdmissionPolicy": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [pods]},
            "validations": [denial],
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": here,
        },
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    objects = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [head | {"kind": kind, "spec": spec} for kind, spec in specs.items()],
        }
    )
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "is-it-heeded", "labels": {LABEL_POOL: denied[0]}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    kubectl("apply", "-f", "-", stdin=objects)
    try:
        eventually(
            lambda: kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=json.dumps(probe)).returncode,
            "the policy is heeded",
        )
        yield
    finally:
        kubectl("delete", "-f", "-", stdin=objects)


async def test_what_an_admission_policy_refuses_is_told_and_tried_again(
    stage: Stage, in_namespace: Kubectl, operator: Operator
):
    with policy(in_namespace, "odd"):
        await stage.apply(a_pool("odd", replicas=1), a_pool("cpu", replicas=1))
        said = await stage.shows("Degraded", "True Forbidden")
        assert "ValidatingAdmissionPolicy" in said
        assert "ask the administrators" in said
        await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"])
        assert await stage.names(pool="odd") == []
    await stage.becomes(lambda: stage.names(pool="odd"), ["demo-odd-worker-0"], "no edit is needed", seconds=120)
    await stage.shows("Degraded", "False Healthy")


async def test_a_name_that_somebody_else_has_is_left_alone(stage: Stage, operator: Operator):
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await stage.create("pods", pod | {"metadata": {"name": "demo-cpu-worker-0"}})
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(stage.names, ["demo-cpu-worker-1"])
    await stage.shows("Ready", "True AllReady")
    stranger = await stage.get("pods", "demo-cpu-worker-0")
    assert stranger
    assert "ownerReferences" not in stranger["metadata"]


async def test_a_terminating_pod_keeps_its_name_until_it_is_gone(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Ready", "True AllReady")
    stage.kubelet.keeps.add("demo-cpu-worker-0")
    await stage.delete("pods", "demo-cpu-worker-0")
    await stage.becomes(stage.names, ["demo-cpu-worker-1"])
    await stage.shows("Ready", "True AllReady")
    assert await stage.get("pods", "demo-cpu-worker-0")


async def test_clusters_whose_names_could_collide_do_not_meet(stage: Stage, operator: Operator):
    await stage.apply(a_pool("b", replicas=2), name="a")
    await stage.apply(a_pool("b", replicas=1), name="a-b")
    await stage.shows("Ready", "True AllReady", name="a")
    await stage.shows("Ready", "True AllReady", name="a-b")
    await stage.apply(a_pool("b", replicas=0), name="a")
    await stage.becomes(lambda: stage.names("a"), [])
    await stays(lambda: stage.names("a-b"), ["a-b-b-worker-0"], 0.5)


async def test_a_pool_without_a_node_says_so_and_the_other_works(stage: Stage, operator: Operator):
    stage.kubelet.full.add("gpu")
    await stage.apply(a_pool(replicas=1), gpu_pool())
    scheduler = await stage.scheduler()
    await scheduler.want(5, GPU=1)
    said = await stage.shows("Degraded", "True Unschedulable")
    assert "0/2 nodes are available: 2 Insufficient nvidia.com/gpu; since " in said
    await stage.shows("Ready", "True AllReady")
    assert await stage.names(pool="gpu") == ["demo-gpu-worker-0"]
    await scheduler.want(0)
    await stage.becomes(lambda: stage.names(pool="gpu"), [])


async def test_a_demand_that_nobody_serves_is_named(stage: Stage, operator: Operator):
    await stage.apply(a_pool(replicas=1), gpu_pool())
    scheduler = await stage.scheduler()
    await scheduler.want(3, GPU=2)
    said = await stage.shows("DemandServable", "False NoPoolServes")
    assert "3 tasks want GPU: 2; pool cpu offers no resources a worker, pool gpu offers GPU: 1 a worker" in said


async def test_a_service_that_is_somebody_elses_is_left_alone_and_named(stage: Stage, operator: Operator):
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "demo-scheduler"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"name": "tcp-comm", "port": 8786, "targetPort": 1}]},
    }
    await stage.create("services", theirs)
    await stage.apply(a_pool("cpu"))
    said = await stage.shows("Degraded", "True NameConflict")
    assert "demo-scheduler" in said
    found = await stage.get("services", "demo-scheduler")
    assert found is not None
    assert found["spec"]["selector"] == {"app": "theirs"}
    assert "ownerReferences" not in found["metadata"], "it would be deleted with the cluster"


async def test_a_configmap_that_was_made_without_our_knowledge_is_taken_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    create, answers = Kubernetes.create, []

    async def late(self: Kubernetes, body: dict[str, Any], **options: Any) -> Any:
        if body["kind"] != "ConfigMap":
            return await create(self, body, **options)
        answers.append(await create(self, body, **options))
        raise ApiError(409, "AlreadyExists", "it exists", "POST configmaps")

    monkeypatch.setattr(Kubernetes, "create", late)
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
        await stage.shows("Degraded", "False Healthy")
    made = {answer["metadata"]["uid"] for answer in answers}
    assert len(answers) == len(made) == 2, "the preload's and the token's"
    assert made <= {item["metadata"]["uid"] for item in await stage.list("configmaps")}
