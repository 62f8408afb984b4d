"""The annotation by which a worker group follows demand: `gpudask.dev/autoscale: "0..8"`, pods at least and at most.

It is on a DaskWorkerGroup, or on a DaskCluster for the default group. Whatever a tenant writes there has an answer:
limits, or an error that says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpudask.api.resource import ANNOTATION_AUTOSCALE
from gpudask.api.untrusted_text import quote

PATH = f"metadata.annotations[{ANNOTATION_AUTOSCALE}]"
_FORM = re.compile(r"\s*([0-9]{1,6})\s*\.\.\s*([0-9]{1,6})\s*")
_LONGEST = 64  # characters that are read, and quoted
_ADVICE = 'write pods at least and at most, such as "0..8"'


@dataclass(frozen=True)
class Limits:
    """Pods of a pool without demand, and at most."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}..{self.most}"


def read_limits(metadata: Mapping[str, Any]) -> Limits | None:
    """The limits that the object with `metadata` asks for; None: it has no such annotation, and a fixed size.

    Raises:
        ValueError: the annotation has no limits; the message says what to write.
    """
    annotations = metadata.get("annotations")
    if not isinstance(annotations, Mapping) or annotations.get(ANNOTATION_AUTOSCALE) is None:
        return None
    try:
        return parse_limits(str(annotations[ANNOTATION_AUTOSCALE]))
    except ValueError as error:
        raise ValueError(f"{PATH}: {error}") from error


def parse_limits(text: str) -> Limits:
    """The limits that `text` says, such as `0..8`.

    Raises:
        ValueError: it says none; the message says what to write.
    """
    from gpudask.api.pool import MAX_REPLICAS  # noqa: PLC0415 - the models take long to load

    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{quote(text, _LONGEST)!r} is no limits: {_ADVICE}")
    limits = Limits(int(found[1]), int(found[2]))
    if limits.least > limits.most:
        raise ValueError(f"{limits}: the first is larger than the second: {_ADVICE}")
    if limits.most < 1:
        raise ValueError(f"{limits}: at most none: write {limits.least}..1 or more, or spec.worker.replicas: 0 instead")
    if limits.most > MAX_REPLICAS:
        raise ValueError(f"{limits}: a pool has {MAX_REPLICAS} pods at most: write {MAX_REPLICAS} or less")
    return limits
