"""A node takes pods when its kubelet has said so since it was started: what it said before may be long untrue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from local.nodes.readiness import readiness_blocker

REPORTED = datetime(2030, 1, 1, 12, 0, 5, tzinfo=UTC)


def _node(*taints: str, status: str = "True") -> dict[str, Any]:
    ready = {
        "type": "Ready",
        "status": status,
        "message": "its words",
        "lastHeartbeatTime": REPORTED.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"status": {"conditions": [ready]}, "spec": {"taints": [{"key": key} for key in taints]}}


@pytest.mark.parametrize("seconds_before", [0.0, 60.0])
def test_a_report_since_the_start_counts(seconds_before: float):
    assert readiness_blocker(_node(), REPORTED.timestamp() - seconds_before) is None


def test_a_report_from_before_the_start_does_not_count():
    assert "not reported since" in str(readiness_blocker(_node(), REPORTED.timestamp() + 0.5))


def test_an_unready_node_is_told_in_the_kubelets_words():
    assert readiness_blocker(_node(status="False"), 0.0) == "its words"


def test_a_node_that_never_reported_is_not_ready():
    assert readiness_blocker({"status": {}, "spec": {}}, 0.0) == "its kubelet has not reported yet"


def test_a_node_whose_taint_is_not_taken_back_yet_takes_no_pods():
    blocker = readiness_blocker(_node("node.kubernetes.io/not-ready", "nvidia.com/gpu"), 0.0)
    assert blocker == "it is still tainted: node.kubernetes.io/not-ready"


def test_the_gpu_taint_is_none_of_them():
    assert readiness_blocker(_node("nvidia.com/gpu"), 0.0) is None
