"""The ConfigMap with the preload's code, which runs inside schedulers: one for all clusters of a namespace and version.

Its name is the digest of what it holds, and it is immutable: whether it is the right one anybody can compute from it
alone, whoever made it, and a scheduler that runs keeps the one that it was made with.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json

from gpudask.api import Json
from gpudask.api.resource import LABEL_PRELOAD

PREFIX = "gpudask-preload-"
# Of SHA-256, so many that nobody finds other contents with the same name.
_DIGITS = 32


def preload(namespace: str, files: dict[str, bytes], references: list[Json]) -> Json:
    """The ConfigMap with `files`, name -> bytes; `references`: `Cluster.shared_reference` of those that share it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name(files),
            "namespace": namespace,
            "labels": {
                LABEL_PRELOAD: "shared",
                "app.kubernetes.io/name": "dask",
                "app.kubernetes.io/component": "scheduler",
                "app.kubernetes.io/managed-by": "gpudask",
            },
            "ownerReferences": references,
        },
        "immutable": True,
        **_made_of(tuple(files.items()))[1],
    }


def name(files: dict[str, bytes]) -> str:
    """The name of the ConfigMap with `files`."""
    return _made_of(tuple(files.items()))[0]


def named(body: Json) -> str:
    """The name that a ConfigMap has by its contents."""
    held = {part: body.get(part) or {} for part in ("data", "binaryData")}
    return PREFIX + hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=8)
def _made_of(files: tuple[tuple[str, bytes], ...]) -> tuple[str, Json]:
    """The name of the ConfigMap with `files`, and its contents."""
    texts = {path: content.decode() for path, content in files if path.endswith(".py")}
    others = {path: base64.b64encode(content).decode() for path, content in files if not path.endswith(".py")}
    held = {"data": texts, "binaryData": others}
    return named(held), held
