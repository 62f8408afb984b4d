"""The doctor's judgement: facts in, findings out."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api import crd
from gpudask.cli.doctor.checks import judge, unreachable
from gpudask.cli.doctor.facts import Facts, watched
from gpudask.cli.doctor.findings import Level
from gpudask.cli.doctor.rights import OPERATOR, Right
from tests.builders import a_manifest, a_pool

Json = dict[str, Any]
VERSION = "0.1.0"
RBAC = Path(__file__).parents[1] / "chart" / "golden" / "rbac-everywhere.yaml"


def a_node(name: str, *, labelled: bool = True, gpus: int = 1, taint: str = "", **labels: str) -> Json:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    present = {"nvidia.com/gpu.present": "true"} if labelled else {}
    status = {"allocatable": {"cpu": "8", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "labels": present | labels}, "spec": {"taints": taints}, "status": status}


def a_deployment(name: str = "gpudask", version: str = VERSION, ready: int = 1, namespaces: str = "") -> Json:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": "operator"}
    labels["app.kubernetes.io/version"] = version
    env = [{"name": "GPUDASK_WATCH_NAMESPACES", "value": namespaces}]
    template = {"spec": {"serviceAccountName": name, "containers": [{"env": env}]}}
    metadata = {"name": name, "namespace": "system", "labels": labels}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": template}, "status": {"readyReplicas": ready}}


def a_definition() -> Json:
    return crd.render() | {"status": {"conditions": [{"type": "Established", "status": "True"}]}}


def a_body(*pools: Json, **spec: Any) -> Json:
    body = a_manifest(*pools, **spec)
    body["metadata"] |= {"namespace": "lab", "uid": "uid"}
    return body


def well(**changes: Any) -> Facts:
    """A Kubernetes as it should be."""
    facts: Json = {
        "version": {"gitVersion": "v1.36.3", "minor": "36"},
        "namespace": "lab",
        "crd": a_definition(),
        "stock_crd": {},
        "deployments": [a_deployment()],
        "daemon_sets": [],
        "nodes": [a_node("n1"), a_node("n2", labelled=False, gpus=0)],
        "clusters": [a_body(a_pool("cpu"), a_pool("gpu", gpu={"count": 1}))],
        "may_not": [],
        "operator_may_not": [],
    }
    return Facts(**(facts | changes))


def found(facts: Facts) -> list[tuple[str, Level, str]]:
    return [(item.check, item.level, item.text) for item in judge(facts, VERSION) if item.level != Level.OK]


def test_a_healthy_cluster_has_no_finding_but_good_ones():
    assert found(well()) == []
    assert [item.check for item in judge(well(), VERSION)] == [
        "API server",
        "resource definition",
        "operator",
        "operator's rights",
        "your rights",
        "stock Dask operator",
        "GPU nodes",
        "pools",
    ]


def older() -> Json:
    definition = a_definition()
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del properties["rollout"]
    properties["pools"]["items"]["properties"]["name"] = {"type": "string"}
    return definition


def unserved() -> Json:
    definition = a_definition()
    definition["spec"]["versions"][0]["name"] = "v1beta7"
    return definition


@pytest.mark.parametrize(
    ("changes", "check", "level", "said"),
    [
        ({"version": {"gitVersion": "v1.28.1", "minor": "28+"}}, "API server", Level.PROBLEM, "1.29 is the oldest"),
        ({"crd": {}}, "resource definition", Level.PROBLEM, "is not installed"),
        ({"crd": unserved()}, "resource definition", Level.PROBLEM, "serves v1beta7, this program speaks v1alpha1"),
        ({"crd": crd.render()}, "resource definition", Level.PROBLEM, "is not established"),
        ({"crd": older()}, "resource definition", Level.WARNING, "spec.pools.name, spec.rollout"),
        ({"crd": None, "refused": {"crd": "forbidden"}}, "resource definition", Level.UNKNOWN, "forbidden"),
        ({"deployments": []}, "operator", Level.PROBLEM, "no deployment of it"),
        ({"deployments": [a_deployment(ready=0)]}, "operator", Level.PROBLEM, "gpudask in namespace system has no pod"),
        (
            {"deployments": [a_deployment(version="9.9")]},
            "operator",
            Level.WARNING,
            "runs version 9.9, this program is 0.1",
        ),
        (
            {"operator_may_not": [("team", Right("", "pods", "create")), ("", Right("policy", "x", "list"))]},
            "operator's rights",
            Level.PROBLEM,
            "create pods in team, list x.policy in all namespaces",
        ),
        ({"operator_may_not": None}, "operator's rights", Level.UNKNOWN, "could not be looked at"),
        ({"may_not": [Right("", "pods/log", "get")]}, "your rights", Level.WARNING, "you may not: get pods/log"),
        (
            {"deployments": [a_deployment(), a_deployment("dask-kubernetes-operator")]},
            "stock Dask operator",
            Level.WARNING,
            "it runs: dask-kubernetes-operator in system",
        ),
        ({"nodes": None, "refused": {"nodes": "forbidden"}}, "GPU nodes", Level.UNKNOWN, "forbidden"),
        ({"nodes": [a_node("n", gpus=0)], "clusters": []}, "device plugin", Level.PROBLEM, "offers no nvidia.com/gpu"),
        ({"nodes": [a_node("n", labelled=False)], "clusters": []}, "GPU nodes", Level.WARNING, "has no label"),
    ],
)
def test_one_fault_is_one_finding_with_a_remedy(changes: Json, check: str, level: Level, said: str):
    [finding] = [item for item in judge(well(**changes), VERSION) if item.level != Level.OK]

    assert (finding.check, finding.level) == (check, level)
    assert said in finding.text
    assert finding.mend


@pytest.mark.parametrize(
    ("pool", "node", "said"),
    [
        (
            {"gpu": {"count": 1}},
            a_node("n", labelled=False, gpus=0),
            "no node has the labels nvidia.com/gpu.present=true",
        ),
        (
            {"gpu": {"count": 4}},
            a_node("n", gpus=2),
            "a pod wants 4 of nvidia.com/gpu, no node of it offers more than 2",
        ),
        (
            {"gpu": {"count": 1, "resourceName": "nvidia.com/mig-1g.10gb"}},
            a_node("n"),
            "wants 1 of nvidia.com/mig-1g.10gb, no node of it offers more than 0",
        ),
        ({"gpu": {"count": 1}}, a_node("n", taint="team"), "taints that it does not tolerate: team:NoSchedule"),
        (
            {"template": {"spec": {"nodeSelector": {"zone": "b"}}}},
            a_node("n", zone="a"),
            "no node has the labels zone=b",
        ),
    ],
)
def test_a_pool_that_no_node_can_take_is_named(pool: Json, node: Json, said: str):
    facts = well(nodes=[node], clusters=[a_body(a_pool("special", **pool))])
    [finding] = [item for item in judge(facts, VERSION) if item.check.startswith("pool ")]

    assert finding.check == "pool lab/demo special"
    assert said in finding.text
    assert finding.mend


@pytest.mark.parametrize(
    "pool",
    [
        {"gpu": {"count": 1}, "template": {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}}},
        {"gpu": {"count": 1}, "template": {"spec": {"tolerations": [{"operator": "Exists"}]}}},
    ],
)
def test_a_taint_that_a_template_tolerates_is_no_obstacle(pool: Json):
    facts = well(nodes=[a_node("n", taint="team")], clusters=[a_body(a_pool("special", **pool))])

    assert found(facts) == []


def test_the_usual_taint_of_gpu_nodes_is_tolerated():
    facts = well(nodes=[a_node("n", taint="nvidia.com/gpu")], clusters=[a_body(a_pool("gpu", gpu={"count": 1}))])

    assert found(facts) == []


def test_no_gpu_node_is_a_warning_only_where_a_pool_wants_one():
    nodes = [a_node("n", labelled=False, gpus=0)]

    assert found(well(nodes=nodes, clusters=[a_body(a_pool("cpu"))])) == []
    checks = [check for check, _, _ in found(well(nodes=nodes))]
    assert checks == ["GPU nodes", "pool lab/demo gpu"]


def test_a_stored_spec_that_is_not_valid_is_named():
    facts = well(clusters=[a_body(a_pool("cpu", replicas=1, autoscale={"max": 2}))])

    assert [(check, level) for check, level, _ in found(facts)] == [("cluster lab/demo", Level.PROBLEM)]


def test_a_plugin_that_is_there_is_named_in_the_remedy():
    plugin = {"metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"}}
    facts = well(nodes=[a_node("n", gpus=0)], clusters=[], daemon_sets=[plugin])
    [finding] = [item for item in judge(facts, VERSION) if item.check == "device plugin"]

    assert "nvidia-device-plugin in kube-system" in finding.mend


def test_no_server_is_one_problem():
    assert [(item.check, item.level) for item in unreachable("refused")] == [("API server", Level.PROBLEM)]


@pytest.mark.parametrize(("value", "expected"), [("", [""]), ("a,b", ["a", "b"])])
def test_the_namespaces_that_an_operator_watches(value: str, expected: list[str]):
    assert watched(a_deployment(namespaces=value)) == expected


def test_the_operators_rights_are_those_of_the_chart():
    [role] = [
        item
        for item in yaml.safe_load_all(RBAC.read_text())
        if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", "gpudask")
    ]
    granted = {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if group != "kubernetes.dask.org"  # of the mirror, which is a switch
    }

    assert granted == set(OPERATOR)
