"""Proxy settings: the parts of a cluster reach each other without the site's proxy, which is for what lies outside."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from local.control_plane.components import POD_RANGE, SERVICE_RANGE

_DIRECT = ("127.0.0.1", "localhost", POD_RANGE, SERVICE_RANGE, ".svc", ".cluster.local")
_NAMES = ("NO_PROXY", "no_proxy")
"""Programs look at one of them or at both, some at the first alone."""


def reach_cluster_directly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Except the cluster's addresses from a proxy that `environment` names, for all that is started from here."""
    wanted = [place for name in _NAMES for place in environment.get(name, "").split(",") if place]
    value = ",".join(dict.fromkeys([*wanted, *_DIRECT]))
    environment.update(dict.fromkeys(_NAMES, value))
