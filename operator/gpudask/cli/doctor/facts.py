"""The facts about a server, with what may not be read left as an open question, and the findings of checks. Pure."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import GROUP, PLURAL
from gpudask.cli.doctor.rights import Right
from gpudask.mirror.objects import CATEGORY

CRD = f"{PLURAL}.{GROUP}"
DEFAULT_IMAGE = "GPUDASK_DEFAULT_IMAGE"  # of an operator
_LABELS = {"app.kubernetes.io/name": "gpudask", "app.kubernetes.io/component": "operator"}


class Level(StrEnum):
    """The severity of a finding; only a problem changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "unknown"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """The finding of a check, one line of the doctor's.

    `mend`: what to do, empty where nothing is to be done. `version`: of what was checked, where it has one.
    """

    check: str
    level: Level
    text: str
    mend: str = ""
    version: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


@dataclass
class Facts:
    """A server as it was read. What is None could not be read: `refused` has the reason under the field's name.

    `served`: whether it serves our resource in this program's version; `records_served`: and the records of clusters.
    `job_definitions`: the CRDs of jobs and cron jobs by their plurals, empty where it serves none, without what may not
    be read. `dask_kinds`: the kinds of `kubernetes.dask.org` that it serves, with their categories.
    `operator_may_not`: rights that an operator misses, and where.
    """

    version: Json | None = None
    namespace: str = ""
    user: str = ""
    crd: Json | None = None
    served: bool | None = None
    records_served: bool | None = None
    job_definitions: dict[str, Json] | None = None
    dask_kinds: dict[str, list[str]] | None = None
    deployments: list[Json] | None = None
    operator_pods: list[Json] | None = None
    daemon_sets: list[Json] | None = None
    nodes: list[Json] | None = None
    clusters: list[Json] | None = None
    may_not: list[Right] | None = None
    operator_may_not: list[tuple[str, Right]] | None = None
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def operators(self) -> list[Json]:
        """The deployments of this project's operator, by the chart's labels."""
        return [item for item in self.deployments or [] if _LABELS.items() <= labels(item).items()]

    @property
    def running(self) -> list[Json]:
        """The operators that are not scaled to 0."""
        return [item for item in self.operators if item["spec"].get("replicas", 1) != 0]

    @property
    def foreign_kinds(self) -> list[str]:
        """The kinds of `kubernetes.dask.org` that our chart did not install."""
        return sorted(kind for kind, categories in (self.dask_kinds or {}).items() if CATEGORY not in categories)

    def unread(self, check: str, name: str) -> Finding:
        """The finding that `check` stays open, because the field `name` could not be read."""
        text = f"could not be looked at: {self.refused.get(name, 'it was not read')}"
        return Finding(check, Level.UNKNOWN, text, "let somebody with an administrator's rights type: gpudask doctor")


def labels(item: Json) -> Json:
    """An object's labels."""
    return item["metadata"].get("labels") or {}


def place(item: Json) -> str:
    """An object in words: `gpudask in namespace team`."""
    return f"{item['metadata']['name']} in namespace {item['metadata']['namespace']}"


def setting(deployment: Json, name: str) -> str:
    """An environment variable of an operator; empty where it is not set."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return next((str(env.get("value", "")) for env in containers[0].get("env") or [] if env["name"] == name), "")


def release(item: Json) -> str:
    """The Helm release of an operator."""
    return str(labels(item).get("app.kubernetes.io/instance", "gpudask"))


def upgrade(item: Json) -> str:
    """The command that changes an operator's settings."""
    return f"helm upgrade {release(item)} charts/gpudask -n {item['metadata']['namespace']} --reuse-values"


def watched(deployment: Json) -> list[str]:
    """The namespaces that an operator runs clusters in; an empty name means all."""
    names = setting(deployment, "GPUDASK_WATCH_NAMESPACES").split(",")
    return [name.strip() for name in names if name.strip()] or [""]


def keeps_history(deployment: Json) -> bool:
    """True if an operator writes records of its clusters; those before this version know of none."""
    text = setting(deployment, "GPUDASK_HISTORY")
    with contextlib.suppress(ValueError, AttributeError):
        return bool(text) and json.loads(text).get("enabled", True) is not False
    return False


def mirrors(deployment: Json) -> bool:
    """True if an operator mirrors its clusters for the stock Dask client."""
    return setting(deployment, "GPUDASK_MIRROR") == "true"
