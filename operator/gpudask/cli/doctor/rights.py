"""The rights that the operator and its users need. A test holds the operator's to the chart's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpudask.api.resource import GROUP, PLURAL

Json = dict[str, Any]


@dataclass(frozen=True)
class Right:
    """One verb on one resource, `pods/log` for a subresource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"

    def attributes(self, namespace: str) -> Json:
        """As a SubjectAccessReview asks for it; an empty namespace means all of them."""
        resource, _, sub = self.resource.partition("/")
        asked = {"group": self.group, "resource": resource, "verb": self.verb}
        return asked | ({"subresource": sub} if sub else {}) | ({"namespace": namespace} if namespace else {})


def _rights(group: str, resources: tuple[str, ...], *verbs: str) -> tuple[Right, ...]:
    return tuple(Right(group, resource, verb) for resource in resources for verb in verbs)


OPERATOR = (
    *_rights(GROUP, (PLURAL,), "get", "list", "watch", "delete"),
    *_rights(GROUP, (f"{PLURAL}/status",), "patch"),
    *_rights("", ("pods",), "get", "list", "watch", "create", "patch", "delete"),
    *_rights("", ("services", "configmaps"), "list", "watch", "create", "patch"),
    *_rights("policy", ("poddisruptionbudgets",), "list", "watch", "create", "patch"),
    *_rights("", ("secrets",), "create", "patch"),
    *_rights("events.k8s.io", ("events",), "create", "patch"),
)
USER = (
    *_rights(GROUP, (PLURAL,), "get", "list", "watch", "create", "patch", "delete"),
    *_rights("", ("pods",), "list"),
    *_rights("", ("pods/log",), "get"),
    *_rights("", ("pods/portforward",), "get", "create"),
)
