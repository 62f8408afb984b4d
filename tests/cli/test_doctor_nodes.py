"""The doctor's judgement of nodes: their GPUs and device plugins, and the pools that want them."""

from gpudask.api import Json


import pytest

from gpudask.cli.doctor.checks import judge
from gpudask.cli.doctor.facts import Level
from tests.builders import a_pool
from tests.cli.doctor_builders import VERSION, a_body, a_deployment, a_node, away, found, left, only_fault, well

A_PLUGIN = {
    "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"},
    "status": {"desiredNumberScheduled": 1, "numberReady": 0},
}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
PLAIN = a_node("n", labelled=False)
AMD = a_node("n", labelled=False, gpus=0, room={"amd.com/gpu": "8"})
BARE = {"template": {"spec": {"containers": [{}]}}}


@pytest.mark.parametrize(
    ("changes", "check", "level", "said", "mend"),
    [
        ({"nodes": None, "refused": {"nodes": "forbidden"}}, "GPU nodes", Level.UNKNOWN, "forbidden", "gpudask doctor"),
        (
            {"nodes": [a_node("n", gpus=0)], "clusters": []},
            "device plugin",
            Level.PROBLEM,
            "node n is labelled nvidia.com/gpu.present=true, but offers no nvidia.com/gpu",
            "install NVIDIA's device plugin",
        ),
        (
            {"nodes": [a_node("n", gpus=0)], "clusters": [], "daemon_sets": None},
            "device plugin",
            Level.PROBLEM,
            "offers no nvidia.com/gpu",
            "see whether a device plugin runs there",
        ),
        (
            {"nodes": [a_node("n", gpus=0)], "clusters": [], "daemon_sets": [A_PLUGIN]},
            "device plugin",
            Level.PROBLEM,
            "offers no nvidia.com/gpu",
            "kubectl logs -n kube-system daemonset/nvidia-device-plugin (0 of 1 pods of it are ready)",
        ),
        (
            {"nodes": [left(a_node("n", gpus=8), gpus="0")], "clusters": []},
            "device plugin",
            Level.PROBLEM,
            "registered with 8 nvidia.com/gpu, of which none can be used now",
            "nvidia-smi",
        ),
        (
            {"nodes": [left(a_node("n", gpus=8), gpus="7")]},
            "device plugin",
            Level.WARNING,
            "node n is short of 1 of 8 nvidia.com/gpu",
            "nvidia-smi",
        ),
        (
            {"nodes": [away(a_node("n"))], "clusters": []},
            "GPU nodes",
            Level.WARNING,
            "node n is not ready",
            "kubectl describe node n",
        ),
        (
            {
                "nodes": [a_node("n", labelled=False, gpus=0) | {"metadata": {"name": "n", "labels": GKE}}],
                "clusters": [],
            },
            "device plugin",
            Level.PROBLEM,
            "labelled cloud.google.com/gke-accelerator=nvidia-l4, but offers no",
            "install NVIDIA's device plugin",
        ),
        (
            {"nodes": [a_node("n", labelled=False)], "clusters": []},
            "GPU nodes",
            Level.WARNING,
            "node n: 1 nvidia.com/gpu, but without the label nvidia.com/gpu.present=true",
            "kubectl label node n nvidia.com/gpu.present=true",
        ),
    ],
)
def test_one_fault_is_one_finding_with_a_remedy(changes: Json, check: str, level: Level, said: str, mend: str):
    finding = only_fault(well(**changes))

    assert (finding.check, finding.level) == (check, level)
    assert said in finding.text
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("changes", "check", "said"),
    [
        ({"clusters": [a_body(a_pool("gpu", gpu={"nodeSelector": {}}))], "nodes": [PLAIN]}, "GPU nodes", "1 nvidia"),
        ({"nodes": [AMD]}, "GPU nodes", "node n: 8 amd.com/gpu"),
        (
            {"nodes": [a_node("n", gpus=0, labelled=False, room={"nvidia.com/hostdev": "4"})]},
            "GPU nodes",
            "no node has",
        ),
        (
            {"nodes": [a_node(f"n{number}", taint="nvidia.com/gpu") for number in range(5)]},
            "GPU nodes",
            "nodes n0, n1, n2 and 2 more: 1 nvidia.com/gpu, taints nvidia.com/gpu:NoSchedule each",
        ),
        (
            {
                "nodes": [a_node("n", gpus=0, labelled=False)],
                "clusters": [a_body(a_pool("special", gpu={"count": 1}))],
                "deployments": [a_deployment(), {"metadata": {"name": "karpenter", "namespace": "k"}, "spec": BARE}],
            },
            "pool lab/demo special",
            "no node has the labels nvidia.com/gpu.present=true; karpenter may add a node",
        ),
    ],
)
def test_what_is_no_fault_is_no_alarm(changes: Json, check: str, said: str):
    facts = well(**({"clusters": []} | changes))
    findings = [item for item in judge(facts, VERSION) if item.check == check]

    assert {item.level for item in findings} == {Level.OK}
    assert said in findings[0].text


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
        (
            {"resources": {"cpu": 4, "memory": "64Gi"}},
            a_node("n"),
            "a pod wants 64Gi of memory, no node of it offers more than 32Gi",
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


@pytest.mark.parametrize(
    ("key", "node_of", "mend"),
    [
        ("node.kubernetes.io/unschedulable", "n", "kubectl uncordon n"),
        ("node.kubernetes.io/not-ready", "n", "kubectl describe node n"),
        ("team", "n", "tolerate them"),
    ],
)
def test_a_taint_is_mended_by_what_it_means(key: str, node_of: str, mend: str):
    facts = well(nodes=[a_node(node_of, taint=key)], clusters=[a_body(a_pool("gpu", gpu={"count": 1}))])
    [finding] = [item for item in judge(facts, VERSION) if item.check.startswith("pool ")]

    assert finding.mend.startswith(mend)
