"""The operator's words for what a program waits for, read from a cluster's status."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def why_not_ready(status: Json) -> str:
    """The operator's words for what is not as it should be."""
    bad = [item for item in status.get("conditions", []) if item["status"] == "False" and item["type"] != "Degraded"]
    # `Ready` only sums the others up.
    bad = [item for item in bad if item["type"] != "Ready"] or bad
    if bad:
        return "; ".join(f"{item['type']} is False, {item['reason']}: {item.get('message', '')}" for item in bad)
    if status.get("reason"):
        return f"{status.get('phase', '')}, {status['reason']}"
    return "the operator has reported nothing yet: is it running?" if not status else "the operator gives no reason"


def why_pool_waits(status: Json, pool: str | None) -> str:
    """The operator's words for the size and the progress of `pool`."""
    for item in status.get("pools", []):
        if item["name"] == pool:
            words = [f"{item.get('ready', 0)} of {item.get('desired', 0)} desired pods are ready"]
            words += [item[key] for key in ("message", "reason") if item.get(key)]
            return ", ".join(words)
    return ""
