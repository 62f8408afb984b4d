"""Conventions of Dask and its stock client: ports, and the pool that is meant where none is named.

Operator and client agree on them here. The labels that the stock client looks for are in resource.py.
"""

from __future__ import annotations

from collections.abc import Mapping

COMM_PORT, DASHBOARD_PORT = 8786, 8787
DEFAULT_GROUP = "default"
MIRROR_MANAGER = "gpudask-mirror"
"""The field manager of overrides that users of the stock client set."""


def default_pool(pools: Mapping[str, bool]) -> str:
    """The name of the pool that is meant: `default`, else the first one without GPUs, else the first.

    Args:
        pools: by name, in the manifest's order: whether it has GPUs. One at least.
    """
    plain = [name for name, has_gpus in pools.items() if not has_gpus]
    return DEFAULT_GROUP if DEFAULT_GROUP in pools else [*plain, *pools][0]
