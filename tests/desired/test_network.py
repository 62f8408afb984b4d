"""The NetworkPolicy of a cluster: its own pods, its peers and the operator come in, nobody else."""

from __future__ import annotations

from gpudask.api import Json

from typing import Any

import pytest

from gpudask.desired.network import policy
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from tests.builders import a_pool
from tests.planning.builders import cluster


OF = cluster(a_pool(), name="demo")
OTHER = cluster(a_pool(), name="other")


def selected(body: Json, labels: dict[str, str]) -> bool:
    """Whether a selector of labels alone selects."""
    return bool(body["matchLabels"].items() <= labels.items())


def labels_of_pods(of: Any) -> list[dict[str, str]]:
    pods = scheduler_pod(of, f"{of.name}-scheduler-abcde", {}), worker_pod(of, of.spec.pools[0], 0, "n")
    return [pod["metadata"]["labels"] for pod in pods]


def test_it_is_for_all_pods_of_its_cluster_and_for_no_others() -> None:
    chosen = policy(OF, "ops")["spec"]["podSelector"]
    assert [selected(chosen, labels) for labels in labels_of_pods(OF)] == [True, True]
    assert [selected(chosen, labels) for labels in labels_of_pods(OTHER)] == [False, False]


def test_without_peers_the_clusters_own_pods_and_the_operator_come_in() -> None:
    own, operator = policy(OF, "ops")["spec"]["ingress"]
    [pods] = own["from"]
    assert "ports" not in own
    assert [selected(pods["podSelector"], labels) for labels in labels_of_pods(OF)] == [True, True]
    assert [selected(pods["podSelector"], labels) for labels in labels_of_pods(OTHER)] == [False, False]
    assert operator == {
        "from": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ops"}},
                "podSelector": {
                    "matchLabels": {"app.kubernetes.io/name": "gpudask", "app.kubernetes.io/component": "operator"}
                },
            }
        ],
        "ports": [{"protocol": "TCP", "port": 8787}],
    }


@pytest.mark.parametrize(
    "peer",
    [
        {"podSelector": {}},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {"matchLabels": {"app": "hub"}}},
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}},
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"ipBlock": {"cidr": "2001:db8::/64"}},
    ],
)
def test_a_peer_comes_in_as_it_was_written(peer: Json) -> None:
    of = cluster(a_pool(), network={"allowFrom": [peer]})
    assert policy(of, "ops")["spec"]["ingress"][0]["from"][1:] == [peer]


def test_what_goes_out_is_left_alone() -> None:
    assert policy(OF, "ops")["spec"]["policyTypes"] == ["Ingress"]


def test_it_goes_with_its_cluster() -> None:
    assert policy(OF, "ops")["metadata"]["ownerReferences"] == [OF.reference]
