"""Which servers are asked without the proxy of the environment, beyond the names that httpx knows. Pure.

NO_PROXY may hold ranges of addresses, such as 10.0.0.0/8, which kubectl and most tools know and httpx does not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_direct(server: str, environment: Mapping[str, str]) -> bool:
    """Whether the address of the URL `server` lies in a range of NO_PROXY or no_proxy."""
    try:
        address = ipaddress.ip_address(urlsplit(server).hostname or "")
    except ValueError:  # a name
        return False
    listed = [entry for name in ("NO_PROXY", "no_proxy") for entry in environment.get(name, "").split(",")]
    return any(address in network for entry in listed if (network := _network(entry.strip())))


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False) if "/" in entry else None
    except ValueError:
        return None
