"""One kind's local copies, over all watched namespaces."""

from __future__ import annotations

from typing import Any

from gpudask.api.json_object import Json
from gpudask.clients.reflector import Reflector


class Caches:
    """One kind's reflectors: one for the whole cluster, or one for each watched namespace."""

    def __init__(self, reflectors: list[Reflector[Any]]) -> None:
        self.reflectors = reflectors

    def owned(self, owner: str) -> tuple[Any, ...]:
        """The objects of the cluster with this `Identity.owner_key`, or of the mirror of the one of this key."""
        return tuple(item for reflector in self.reflectors for item in reflector.owned(owner))

    def in_namespace(self, namespace: str) -> tuple[Any, ...]:
        """The objects of all clusters of `namespace`."""
        return tuple(item for reflector in self.reflectors for item in reflector.in_namespace(namespace))

    def know(self, namespace: str) -> bool:
        """Whether what there is in `namespace` is known."""
        return self._of(namespace).synced.is_set()

    def lay_over(self, namespace: str, body: Json) -> bool:
        """Take in what one of our own writes returned; whether it could be read."""
        return self._of(namespace).lay_over(body)

    def forget(self, namespace: str, uid: str) -> None:
        """Take out what is gone."""
        self._of(namespace).forget(uid)

    def _of(self, namespace: str) -> Reflector[Any]:
        marker = f"/namespaces/{namespace}/"
        return next((r for r in self.reflectors if marker in r.path), self.reflectors[0])
