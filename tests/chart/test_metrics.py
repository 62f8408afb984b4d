"""The metrics' port: served by default, found and reached only where the values say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpudask import settings
from gpudask.api import attribution

if TYPE_CHECKING:
    from tests.chart.conftest import Helm

SECURE = "metrics.tls.secretName=metrics-tls,metrics.tokenSecret.name=metrics-token"
MONITORS = "metrics.serviceMonitor.enabled=true,metrics.schedulers.podMonitor.enabled=true"


def operators_settings(helm: Helm, *options: str) -> settings.Settings:
    """What the operator makes of the container's environment."""
    variables = container(helm, *options)["env"]
    return settings.read({item["name"]: item.get("value", "") for item in variables})


def container(helm: Helm, *options: str) -> Any:
    return pod(helm, *options)["spec"]["containers"][0]


def pod(helm: Helm, *options: str) -> Any:
    return helm.the("Deployment", *options)["spec"]["template"]


def kinds(helm: Helm, *options: str) -> list[str]:
    return [manifest["kind"] for manifest in helm.manifests(*options)]


def ingress(helm: Helm, *options: str) -> Any:
    return helm.the("NetworkPolicy", *options)["spec"].get("ingress")


def test_metrics_are_served_by_default_and_nobody_is_told_or_let_in(helm: Helm) -> None:
    assert operators_settings(helm).metrics_port == 9090
    assert {"name": "metrics", "containerPort": 9090} in container(helm)["ports"]
    assert not {"Service", "ServiceMonitor", "PodMonitor"} & set(kinds(helm))
    assert ingress(helm) is None


def test_switched_off_there_is_no_port(helm: Helm) -> None:
    off = ("--set", "metrics.enabled=false")
    assert operators_settings(helm, *off).metrics_port is None
    assert [port["name"] for port in container(helm, *off)["ports"]] == ["http"]


def test_the_port_is_the_chosen_one_everywhere(helm: Helm) -> None:
    chosen = ("--set", "metrics.port=9500,metrics.service=true,metrics.annotations=true")
    assert operators_settings(helm, *chosen).metrics_port == 9500
    assert helm.the("Service", *chosen)["spec"]["ports"][0]["port"] == 9500
    assert ingress(helm, *chosen) == [{"ports": [{"port": 9500, "protocol": "TCP"}]}]
    assert pod(helm, *chosen)["metadata"]["annotations"]["prometheus.io/port"] == "9500"


@pytest.mark.parametrize("way", ["annotations", "service", "serviceMonitor.enabled", "podMonitor.enabled"])
def test_whoever_is_told_of_the_port_is_let_in(helm: Helm, way: str) -> None:
    assert ingress(helm, "--set", f"metrics.{way}=true")


def test_only_those_named_are_let_in(helm: Helm) -> None:
    peers = 'metrics.allowFrom=[{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]'
    (rule,) = ingress(helm, "--set-json", peers)
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]


def test_certificate_and_token_arrive_where_the_operator_reads_them(helm: Helm) -> None:
    told = operators_settings(helm, "--set", SECURE)
    mounts = {item["name"]: item["mountPath"] for item in container(helm, "--set", SECURE)["volumeMounts"]}
    volumes = {item["name"]: item for item in pod(helm, "--set", SECURE)["spec"]["volumes"]}
    assert told.metrics_tls == mounts["metrics-tls"]
    assert told.metrics_token == f"{mounts['metrics-token']}/token"
    assert volumes["metrics-tls"]["secret"] == {"secretName": "metrics-tls", "optional": True}
    assert volumes["metrics-token"]["secret"] == {"secretName": "metrics-token", "optional": True}


def test_annotations_say_how_to_read(helm: Helm) -> None:
    said = pod(helm, "--set", f"metrics.annotations=true,{SECURE},podAnnotations.mine=too")["metadata"]["annotations"]
    assert said["mine"] == "too"
    assert {key: value for key, value in said.items() if key.startswith("prometheus.io/")} == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
        "prometheus.io/path": "/metrics",
        "prometheus.io/scheme": "https",
    }


def test_the_service_has_every_operator_also_one_that_starts(helm: Helm) -> None:
    spec = helm.the("Service", "--set", "metrics.service=true")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["selector"] == helm.the("Deployment")["spec"]["selector"]["matchLabels"]


def test_a_monitor_of_pods_needs_no_service(helm: Helm) -> None:
    found = kinds(helm, "--set", "metrics.podMonitor.enabled=true")
    assert "PodMonitor" in found
    assert "Service" not in found


@pytest.mark.parametrize(
    ("kind", "endpoints"), [("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")]
)
def test_a_monitor_reads_as_the_operator_serves(helm: Helm, kind: str, endpoints: str) -> None:
    name = f"{kind[0].lower()}{kind[1:]}"
    more = f"metrics.{name}.enabled=true,metrics.{name}.interval=15s,metrics.{name}.labels.release=prometheus"
    monitor = helm.the(kind, "--set", f"{more},{SECURE}")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"][endpoints] == [
        {
            "port": "metrics",
            "path": "/metrics",
            "interval": "15s",
            "scheme": "https",
            "honorLabels": True,
            "authorization": {"type": "Bearer", "credentials": {"name": "metrics-token", "key": "token"}},
            "tlsConfig": {
                "serverName": "gpudask-metrics.gpudask-system.svc",
                "ca": {"secret": {"name": "metrics-tls", "key": "ca.crt"}},
            },
        }
    ]
    own = helm.the(kind, "--set", f"{more},{SECURE},metrics.{name}.tlsConfig.insecureSkipVerify=true")
    assert own["spec"][endpoints][0]["tlsConfig"] == {"insecureSkipVerify": True}


@pytest.mark.parametrize(
    ("values", "warns"),
    [
        ("metrics.enabled=true", False),
        ("metrics.service=true", True),
        ("metrics.podMonitor.enabled=true", True),
        ("metrics.annotations=true", True),
        ("networkPolicy.create=false,metrics.enabled=false", False),
        ("networkPolicy.create=false", True),
        ("metrics.service=true,metrics.tokenSecret.name=metrics-token", False),
        ("metrics.service=true,metrics.allowFrom[0].podSelector.matchLabels.app=prometheus", False),
        ("metrics.allowFrom[0].podSelector.matchLabels.app=a,networkPolicy.create=false", True),
    ],
)
def test_who_installs_is_told_where_every_pod_can_read_them(helm: Helm, values: str, warns: bool) -> None:
    notes = helm.notes("--set", values)
    assert "Watch it come up" in notes
    assert ("WARNING: every pod of this Kubernetes cluster can read the metrics" in notes) is warns


def test_schedulers_are_read_where_clusters_are(helm: Helm) -> None:
    read = "metrics.schedulers.podMonitor.enabled=true"
    assert helm.the("PodMonitor", "--set", read)["spec"]["namespaceSelector"] == {"any": True}
    some = helm.the("PodMonitor", "--set", f"{read},watchNamespaces={{a,b}}")["spec"]
    assert some["namespaceSelector"] == {"matchNames": ["a", "b"]}
    (endpoint,) = some["podMetricsEndpoints"]
    assert "honorLabels" not in endpoint, "a tenant's process could name its series as others'"


def test_the_operator_is_told_whose_clusters_are(helm: Helm) -> None:
    assert operators_settings(helm).attribution == ()
    told = operators_settings(helm, "--set", r"attribution={team,example.com/project}")
    assert told.attribution == ("team", "example.com/project")


def test_chart_and_operator_allow_the_same_number_of_names(helm: Helm) -> None:
    most = ",".join(f"n{number}" for number in range(attribution.MAX_NAMES))
    assert len(operators_settings(helm, "--set", f"attribution={{{most}}}").attribution) == attribution.MAX_NAMES
    assert "attribution" in helm.refusal("--set", f"attribution={{{most},one}}")


def test_all_of_it_together(helm: Helm, golden: Callable[[str, str], None]) -> None:
    chosen = helm.manifests("--set", f"{SECURE},{MONITORS},watchNamespaces={{team-a}}")
    found = [m for m in chosen if m["kind"] in ("Service", "ServiceMonitor", "PodMonitor", "NetworkPolicy")]
    golden("metrics.yaml", yaml.safe_dump_all(found, sort_keys=False))
