"""The operator's pod: every value arrives where it matters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpudask.api import limits
from gpudask.api.limits import Limits
from tests.chart.conftest import REPOSITORY

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

CHART = str(Path(__file__).resolve().parents[2] / "charts" / "gpudask")
DIGEST = "sha256:" + "0" * 64


def test_two_operators_run_and_a_new_one_is_ready_before_an_old_one_ends(helm: Helm) -> None:
    spec = helm.the("Deployment")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert helm.the("Deployment", "--set", "replicas=1")["spec"]["replicas"] == 1


def test_operators_of_one_release_share_a_lease_and_each_has_its_pods_name(helm: Helm) -> None:
    environment = _environment(helm, "--set", "fullnameOverride=ours")
    assert environment["GPUDASK_LEASE"]["value"] == "ours"
    assert environment["GPUDASK_IDENTITY"]["value"] == "$(POD_NAME)_$(POD_UID)"
    names = list(environment)
    for name, path in (("POD_NAME", "metadata.name"), ("POD_UID", "metadata.uid")):
        assert environment[name]["valueFrom"]["fieldRef"]["fieldPath"] == path
        assert names.index(name) < names.index("GPUDASK_IDENTITY"), "only what stands before is put in"


def test_an_eviction_never_takes_the_last_operator(helm: Helm) -> None:
    budget = helm.the("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == helm.the("Deployment")["spec"]["selector"]
    alone = {manifest["kind"] for manifest in helm.manifests("--set", "replicas=1")}
    assert "PodDisruptionBudget" not in alone, "its node could never be drained"


def test_operators_prefer_two_nodes_unless_told_otherwise(helm: Helm) -> None:
    affinity = helm.the("Deployment")["spec"]["template"]["spec"]["affinity"]
    [preferred] = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = preferred["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"] == helm.the("Deployment")["spec"]["selector"]
    own = helm.the("Deployment", "--set-json", 'affinity.podAntiAffinity={"x": 1}')["spec"]["template"]["spec"]
    assert own["affinity"]["podAntiAffinity"] == {"x": 1}


def test_an_operator_on_a_lost_node_is_replaced_soon(helm: Helm) -> None:
    tolerations = helm.the("Deployment")["spec"]["template"]["spec"]["tolerations"]
    assert {(item["key"], item["effect"], item["tolerationSeconds"]) for item in tolerations} == {
        ("node.kubernetes.io/not-ready", "NoExecute", 10),
        ("node.kubernetes.io/unreachable", "NoExecute", 10),
    }


def test_only_what_a_restart_mends_restarts_the_operator(helm: Helm) -> None:
    container = _container(helm)
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = {probe: container[probe]["httpGet"]["path"] for probe in probes}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/healthz"}


def test_the_selector_holds_nothing_that_a_user_sets(helm: Helm) -> None:
    default = helm.the("Deployment")["spec"]["selector"]
    changed = helm.the("Deployment", "--set", "podLabels.team=a,image.tag=v2,fullnameOverride=other")["spec"]
    assert changed["selector"] == default
    assert changed["template"]["metadata"]["labels"]["team"] == "a"


def test_common_labels_are_on_every_object_but_in_no_selector(helm: Helm) -> None:
    labelled = ["--set", "commonLabels.team=a,networkPolicy.create=true,watchNamespaces={x}"]
    manifests = helm.manifests(*labelled)
    assert {"Deployment", "ServiceAccount", "NetworkPolicy", "Role", "ClusterRole"} <= {m["kind"] for m in manifests}
    assert {manifest["metadata"]["labels"].get("team") for manifest in manifests} == {"a"}
    spec = helm.the("Deployment", *labelled)["spec"]
    assert spec["template"]["metadata"]["labels"]["team"] == "a"
    assert "team" not in spec["selector"]["matchLabels"]


def test_a_label_of_the_pod_wins_over_the_one_of_all_objects(helm: Helm) -> None:
    deployment = helm.the("Deployment", "--set", "commonLabels.team=a,podLabels.team=b")
    assert deployment["metadata"]["labels"]["team"] == "a"
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "b"


def test_a_network_policy_lets_nothing_connect_to_the_operators_pod(helm: Helm) -> None:
    kinds = {manifest["kind"] for manifest in helm.manifests("--set", "networkPolicy.create=false")}
    assert "NetworkPolicy" not in kinds
    policy = helm.the("NetworkPolicy")["spec"]
    selector = helm.the("Deployment")["spec"]["selector"]
    assert policy == {"podSelector": selector, "policyTypes": ["Ingress"]}


def test_the_operator_is_told_where_it_is_and_what_to_watch(helm: Helm) -> None:
    environment = _environment(helm, "--set", "watchNamespaces={a,b},log.format=json,log.level=debug")
    assert environment["GPUDASK_WATCH_NAMESPACES"]["value"] == "a,b"
    assert environment["GPUDASK_NAMESPACE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert environment["GPUDASK_KEY_SECRET"]["value"] == "gpudask-key"
    assert environment["GPUDASK_LOG_FORMAT"]["value"] == "json"
    assert environment["GPUDASK_LOG_LEVEL"]["value"] == "debug"


def test_no_watched_namespaces_is_an_empty_word(helm: Helm) -> None:
    assert _environment(helm)["GPUDASK_WATCH_NAMESPACES"]["value"] == ""


def test_the_operator_is_told_the_default_image_of_clusters(helm: Helm) -> None:
    assert _environment(helm)["GPUDASK_DEFAULT_IMAGE"]["value"] == ""
    told = _environment(helm, "--set", "defaults.image=registry.example/dask:1")
    assert told["GPUDASK_DEFAULT_IMAGE"]["value"] == "registry.example/dask:1"


def test_the_notes_show_a_manifest_that_works_with_and_without_a_default_image(helm: Helm) -> None:
    for more, has_image in ((), True), (("--set", "defaults.image=registry.example/dask:1"), False):
        notes = helm.run(*("install", "gpudask", CHART, "--dry-run=client", *REPOSITORY, *more)).stdout
        manifest = notes.partition("<<'YAML'")[2].partition("YAML")[0]
        assert "kind: GpuDaskCluster" in manifest, notes
        assert ("image:" in manifest) == has_image


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ("image.tag=", "registry.example/operator:0.1.0"),
        ("image.tag=dev", "registry.example/operator:dev"),
        ("image.repository=host:5000/me/operator", "host:5000/me/operator:0.1.0"),
        (f"image.digest={DIGEST}", f"registry.example/operator@{DIGEST}"),
    ],
)
def test_the_image_is_the_chosen_one(helm: Helm, values: str, image: str) -> None:
    assert _container(helm, "--set", values)["image"] == image


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        ("image.pullPolicy=Never", "containers.0.imagePullPolicy", "Never"),
        ("imagePullSecrets[0].name=registry", "imagePullSecrets", [{"name": "registry"}]),
        ("serviceAccount.name=ours", "serviceAccountName", "ours"),
        ("resources.requests.cpu=2", "containers.0.resources.requests.cpu", 2),
        ("runAsUser=1234", "securityContext.runAsUser", 1234),
        ("priorityClassName=high", "priorityClassName", "high"),
        ("nodeSelector.disk=ssd", "nodeSelector", {"disk": "ssd"}),
        ("tolerations=null", "tolerations", None),
        ("affinity.nodeAffinity=null,affinity.podAntiAffinity=null", "affinity", None),
        ("topologySpreadConstraints[0].maxSkew=1", "topologySpreadConstraints", [{"maxSkew": 1}]),
    ],
)
def test_a_value_arrives_in_the_pod(helm: Helm, values: str, path: str, expected: Any) -> None:
    found: Any = helm.the("Deployment", "--set", values)["spec"]["template"]["spec"]
    for step in path.split("."):
        found = found[int(step)] if isinstance(found, list) else found.get(step)
    assert found == expected


def test_the_operator_is_told_whether_clusters_get_network_policies(helm: Helm) -> None:
    assert _environment(helm)["GPUDASK_NETWORK_POLICIES"]["value"] == "true"
    off = _environment(helm, "--set", "networkPolicies=false")
    assert off["GPUDASK_NETWORK_POLICIES"]["value"] == "false"


def test_the_operator_reads_the_limits_as_the_chart_writes_them(helm: Helm) -> None:
    found = limits.read(_environment(helm)["GPUDASK_LIMITS"]["value"])
    assert found == Limits(
        creations_per_second=50,
        service_types=("ClusterIP",),
        service_annotations=False,
        template_fields=("serviceAccountName",),
        closed_namespaces=("kube-system", "kube-public", "kube-node-lease"),
    )
    changed = _environment(helm, "--set", "limits.podsPerCluster=7,limits.gpusPerCluster=0")["GPUDASK_LIMITS"]["value"]
    assert (limits.read(changed).pods_per_cluster, limits.read(changed).gpus_per_cluster) == (7, 0)
    namespaced = _environment(helm, "--set-json", "limits.podsPerNamespace=9,limits.creationsPerSecond=0.5")
    found = limits.read(namespaced["GPUDASK_LIMITS"]["value"])
    assert (found.pods_per_namespace, found.creations_per_second) == (9, 0.5)


def test_annotations_and_more_environment_arrive(helm: Helm) -> None:
    options = ["--set", "podAnnotations.a=b,extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=proxy"]
    deployment = helm.the("Deployment", "--set", "deploymentAnnotations.a=c")
    assert deployment["metadata"]["annotations"] == {"a": "c"}
    assert helm.the("Deployment", *options)["spec"]["template"]["metadata"]["annotations"]["a"] == "b"
    assert _environment(helm, *options)["HTTPS_PROXY"]["value"] == "proxy"
    account = helm.the("ServiceAccount", "--set", "serviceAccount.annotations.role=r")
    assert account["metadata"]["annotations"] == {"role": "r"}


def test_a_platform_may_choose_the_user(helm: Helm) -> None:
    context = helm.the("Deployment", "--set", "runAsUser=null")["spec"]["template"]["spec"]["securityContext"]
    assert "runAsUser" not in context
    assert context["runAsNonRoot"] is True


def test_the_operator_prefers_nodes_without_gpus(helm: Helm) -> None:
    affinity = helm.the("Deployment")["spec"]["template"]["spec"]["affinity"]
    [preferred] = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"}
    ]


def test_notes_give_the_next_command(helm: Helm) -> None:
    done = helm.run("install", "gpudask", CHART, "--dry-run=client", *REPOSITORY, "--set", "watchNamespaces={team-a}")
    assert done.returncode == 0, done.stderr
    assert "kubectl apply --namespace team-a -f -" in done.stdout
    assert "kubectl get gdc demo --namespace team-a" in done.stdout


def _container(helm: Helm, *options: str) -> dict[str, Any]:
    [container] = helm.the("Deployment", *options)["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def _environment(helm: Helm, *options: str) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in _container(helm, *options)["env"]}
