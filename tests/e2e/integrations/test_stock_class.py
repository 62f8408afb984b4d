"""Prefect with the stock client's class, on a DaskCluster that the operator serves."""

from __future__ import annotations

import json
import re

import pytest
from dask_kubernetes.operator import make_cluster_spec

from tests.e2e.integrations.packages import ENVIRONMENT, pod_spec, start
from tests.e2e.provider import chosen
from tests.e2e.space import Space
from tests.e2e.test_stock_client_inside import documented_rights

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.local_cluster("pods mount this machine's directories"),
    pytest.mark.pod_security("privileged"),  # hostPath is of no stricter level
    pytest.mark.registry,
]

_SMALL = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def test_a_prefect_flow_makes_a_daskcluster_and_leaves_nothing(space: Space, mirror: None) -> None:
    made = make_cluster_spec("stock", image=chosen().image, n_workers=1, resources=_SMALL, env=ENVIRONMENT)
    for part in (made["spec"]["worker"], made["spec"]["scheduler"]):
        (container,) = part["spec"]["containers"]
        added = pod_spec(container["name"])
        part["spec"]["volumes"] = added["volumes"]
        container |= {
            "volumeMounts": added["containers"][0]["volumeMounts"],
            "imagePullPolicy": chosen().pull_policy,
        }
    program = start(
        space,
        "prefect_flow.py",
        "dask_kubernetes.operator.KubeCluster",
        json.dumps({"custom_cluster_spec": made}),
        json.dumps({"minimum": 1, "maximum": 2}),
        rules=documented_rights(),
    )
    seen = program.lines(seconds=420)
    assert seen["total"] == "12"
    assert re.match(r"stock-default-worker-\d", seen["plain task"])
    space.wait(lambda: not (space.get("daskclusters") or space.get("gdc")), "the flow's cluster is gone", seconds=120)
