"""Readiness of a node for pods, by its object in the API server. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

_UNREADY_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""The node controller takes them off a moment after the node became ready."""


def readiness_blocker(node: dict[str, Any], since: float) -> str | None:
    """Tell why `node`, as the API server has it, takes no pods; None where it does, by a report made since then."""
    ready = next((c for c in node["status"].get("conditions", ()) if c["type"] == "Ready"), None)
    if ready is None:
        return "its kubelet has not reported yet"
    if datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp() < since:
        return f"its kubelet has not reported since it was started; its last report is of {ready['lastHeartbeatTime']}"
    if ready["status"] != "True":
        return str(ready["message"])
    taints = sorted(_UNREADY_TAINTS & {taint["key"] for taint in node["spec"].get("taints", ())})
    return f"it is still tainted: {', '.join(taints)}" if taints else None
