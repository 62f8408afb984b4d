"""RMM, which keeps what it was told."""

from types import SimpleNamespace
from typing import Any

told: list[Any] = []
mr = SimpleNamespace(
    get_current_device_resource=lambda: "resource",
    set_current_device_resource=lambda resource: told.append(("resource", resource)),
    TrackingResourceAdaptor=lambda resource: f"tracked {resource}",
)


def reinitialize(**options: Any):
    told.append(("reinitialize", options))
