"""The rights that the operator and its users need. A test holds the operator's to the chart's."""

from __future__ import annotations

from dataclasses import dataclass

from gpudask.api import Json
from gpudask.api.resource import CRON_JOB_PLURAL, GROUP, JOB_PLURAL, PLURAL, RECORD_PLURAL
from gpudask.mirror import objects


@dataclass(frozen=True)
class Right:
    """One verb on one resource, `pods/log` for a subresource; on the object `name` alone where it is given."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"
        return f"{what} {self.name}" if self.name else what

    def attributes(self, namespace: str) -> Json:
        """As a SubjectAccessReview asks for it; an empty namespace means all of them."""
        resource, _, sub = self.resource.partition("/")
        asked = {"group": self.group, "resource": resource, "verb": self.verb}
        optional = {"subresource": sub, "namespace": namespace, "name": self.name}
        return asked | {key: value for key, value in optional.items() if value}


def _rights(group: str, resources: tuple[str, ...], *verbs: str) -> tuple[Right, ...]:
    return tuple(Right(group, resource, verb) for resource in resources for verb in verbs)


OPERATOR = (
    *_rights(GROUP, (PLURAL,), "get", "list", "watch"),
    *_rights(GROUP, (f"{PLURAL}/status", f"{JOB_PLURAL}/status", f"{CRON_JOB_PLURAL}/status"), "patch"),
    *_rights(GROUP, (PLURAL,), "create", "patch", "delete"),
    *_rights(GROUP, (JOB_PLURAL,), "get", "list", "watch", "create", "delete"),
    *_rights(GROUP, (CRON_JOB_PLURAL,), "get", "list", "watch"),
    *_rights("", ("pods/log",), "get"),
    *_rights("", ("pods",), "get", "list", "watch", "create", "patch", "delete"),
    *_rights("", ("services",), "list", "watch", "create", "patch"),
    *_rights("", ("configmaps",), "get", "list", "watch", "create", "patch", "delete"),
    *_rights("policy", ("poddisruptionbudgets",), "list", "watch", "create", "patch"),
    *_rights("networking.k8s.io", ("networkpolicies",), "list", "watch", "create", "patch", "delete"),
    *_rights("events.k8s.io", ("events",), "create", "patch"),
)
HISTORY = (
    *_rights(GROUP, (RECORD_PLURAL,), "get", "list", "create", "update", "delete"),
    *_rights("", ("pods/log",), "get"),
)
"""For what stays of clusters: the chart's `history`."""
CLEAN_UP = _rights(GROUP, (PLURAL,), "delete")
"""For clusters that ask to be deleted: the chart's `deleteAfter`, which an administrator may switch off."""
MIRROR = (
    *_rights(
        objects.GROUP,
        ("daskclusters", "daskworkergroups", "daskautoscalers"),
        *("list", "watch", "create", "patch", "delete"),
    ),
    *_rights(objects.GROUP, ("daskjobs",), "list", "watch", "patch", "delete"),
    *_rights(GROUP, (PLURAL,), "create", "patch", "delete"),
    *_rights("apps", ("deployments",), "list", "delete"),
    *_rights("", ("services",), "delete"),
)
USER = {
    **dict.fromkeys(_rights(GROUP, (PLURAL,), "get"), "get, wait, top of one cluster"),
    **dict.fromkeys(_rights(GROUP, (PLURAL,), "list"), "get, top"),
    **dict.fromkeys(_rights(GROUP, (PLURAL,), "create"), "create"),
    **dict.fromkeys(_rights(GROUP, (PLURAL,), "patch"), "scale, suspend, resume"),
    **dict.fromkeys(_rights(GROUP, (PLURAL,), "delete"), "delete"),
    **dict.fromkeys(_rights("", ("pods",), "list"), "logs, connect, dashboard"),
    **dict.fromkeys(_rights("", ("pods/log",), "get"), "logs"),
    **dict.fromkeys(_rights(GROUP, (RECORD_PLURAL,), "get", "list"), "history"),
    **dict.fromkeys(_rights("", ("pods/portforward",), "get", "create"), "connect, dashboard"),
}
"""A user's rights, each with the commands that it is for. Who may not watch is served by asking again and again."""


def of_key(secret: str) -> tuple[Right, ...]:
    """The rights that an operator needs in its own namespace, for the Secret that holds its key."""
    return (Right("", "secrets", "get", secret), Right("", "secrets", "create"))
