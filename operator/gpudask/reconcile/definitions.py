"""The kinds of the mirror: whether they are there and ours to write, and what there is of them.

The stock operator's have the same names. Read from the API server's discovery, which every service account may.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudask.api.resource import Cluster
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes
from gpudask.desired import mirror
from gpudask.planning.mirrored import Mirrored
from gpudask.reconcile.caches import Caches


@dataclass
class Definitions:
    """The three kinds on this API server: their caches, or why they are left alone (`refusal`)."""

    caches: dict[str, Caches] = field(default_factory=dict)
    refusal: str = ""

    def of(self, cluster: Cluster) -> tuple[Mirrored, ...]:
        """The objects that are of `cluster` by name, whoever owns them."""
        return tuple(item for caches in self.caches.values() for item in caches.owned(cluster.key))


async def look_for(api: Kubernetes) -> str:
    """Why there can be no mirror; empty: there can.

    Raises:
        ApiError: the API server could not be reached, or failed.
    """
    try:
        found = await api.request("GET", f"/apis/{mirror.API_VERSION}")
    except ApiError as error:
        if not error.not_found:
            raise
        return "its definitions are missing: kubectl apply --server-side -f crds/mirror.yaml, and restart the operator"
    kinds = {item["kind"]: item for item in found["resources"] if "/" not in item["name"]}
    missing = [kind for kind in mirror.KINDS if kind not in kinds]
    foreign = [kind for kind, item in kinds.items() if mirror.CATEGORY not in item.get("categories", ())]
    if foreign:
        return (
            f"{', '.join(sorted(foreign))} of {mirror.GROUP} belong to the stock Dask operator: remove it and its"
            " definitions, or switch the mirror off (mirror.enabled in the chart)"
        )
    if missing:
        return f"{', '.join(missing)} of {mirror.GROUP} are missing: kubectl apply --server-side -f crds/mirror.yaml"
    return ""
