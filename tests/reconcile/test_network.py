"""A cluster's NetworkPolicy: made with it, repaired, reported in a condition, gone where it is switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudask.reconcile.operator import Operator
from tests.builders import a_pool
from tests.reconcile.stage import Stage, eventually, operating

pytestmark = pytest.mark.api

HUB = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hub"}}}
_PATH = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/demo-gpudask"


async def policies(stage: Stage) -> list[dict[str, Any]]:
    return await stage.list("networkpolicies", "networking.k8s.io/v1")


async def peers(stage: Stage) -> Any:
    """Who may connect to all ports, beside the cluster's own pods; None: there is no policy."""
    found = await policies(stage)
    return found[0]["spec"]["ingress"][0]["from"][1:] if found else None


async def test_it_is_made_follows_the_spec_and_is_told(stage: Stage, operator: Operator) -> None:
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Isolated", "True NetworkPolicyApplied: the cluster's own pods and the operator may connect")
    assert await peers(stage) == []
    await stage.apply(a_pool(replicas=1), network={"allowFrom": [HUB]})
    await stage.becomes(lambda: peers(stage), [HUB])
    await stage.shows("Isolated", "the operator and the peer of spec.network.allowFrom may connect")


async def test_what_others_change_in_it_is_put_back(stage: Stage, operator: Operator) -> None:
    await stage.apply(a_pool(replicas=1))
    await stage.becomes(lambda: peers(stage), [])
    path = _PATH.format(stage.namespace)
    opened = {"spec": {"ingress": [{"from": [{"podSelector": {}}, {"namespaceSelector": {}}]}]}}
    await stage.api.request("PATCH", path, body=opened, content_type="application/merge-patch+json")
    await stage.becomes(lambda: peers(stage), [])
    await stage.api.request("DELETE", path)
    await stage.becomes(lambda: peers(stage), [])


async def test_one_of_somebody_else_is_left_alone_and_told(stage: Stage, operator: Operator) -> None:
    theirs = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "demo-gpudask"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]},
    }
    await stage.api.request("POST", _PATH.format(stage.namespace).rpartition("/")[0], body=theirs)
    await stage.apply(a_pool(replicas=1))
    await stage.shows("Isolated", "False NetworkPolicyFailed: there is no NetworkPolicy as wanted")
    await stage.becomes(lambda: stage.names(pool="cpu"), ["demo-cpu-worker-0"], "the cluster is made all the same")
    assert (await policies(stage))[0]["spec"]["ingress"] == [{}]


async def test_switched_off_there_is_none_and_that_is_told(stage: Stage) -> None:
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=1))
        await stage.becomes(lambda: peers(stage), [])
    async with operating(replace(stage.settings, network_policies=False)):
        await eventually(lambda: policies(stage), lambda found: found == [], "the policy is gone")
        await stage.shows("Isolated", "False NetworkPoliciesOff: the chart's networkPolicies is false")
