"""The resource's schema as the API server serves it, compared with the operator's: they are upgraded separately.

Read from the API server's OpenAPI document, which every service account may.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

from gpudask.api import Json, crd
from gpudask.api.resource import API_VERSION, KIND, PLURAL
from gpudask.clients.errors import ApiError
from gpudask.clients.kubernetes import Kubernetes

_LOG = logging.getLogger(__name__)
_PARTS = ("spec", "status")


class ResourceMissingError(Exception):
    """The CRD is not installed; the message says what to do."""


class ServedSchema:
    """The served schema. `missing`: fields that this operator has and the API server has not; `unknown`: the reverse.

    Until it is read, and where it may not be, both are assumed equal. `check_interval_seconds`: between two reads of a
    definition that is older, or that the document does not have yet: the API server adds it later.
    `min_interval_seconds`: between any two reads.
    """

    def __init__(self, *, check_interval_seconds: float = 60.0, min_interval_seconds: float = 5.0) -> None:
        self._check_interval_seconds = check_interval_seconds
        self._min_interval_seconds = min_interval_seconds
        self._is_settled = False  # whether it need not be read again unless it is in doubt
        self._recheck = asyncio.Event()
        self.missing: tuple[str, ...] = ()
        self.unknown: tuple[str, ...] = ()
        self._status: Json = {}

    async def read(self, api: Kubernetes) -> None:
        """Read it, and log where the two differ.

        Raises:
            ApiError: the API server could not be reached, or failed.
        """
        try:
            document = await api.request("GET", f"/openapi/v3/apis/{API_VERSION}")
        except ApiError as error:
            if not (error.forbidden or error.not_found):
                raise
            _LOG.info("the resource's schema may not be read, and is assumed to be this operator's: %s", error)
            self._is_settled = True
            return
        self.compare(_of_resource(document))

    def compare(self, served: Json) -> None:
        """Compare with `served`: the schema of the whole resource, as OpenAPI has it; empty: it is not there yet."""
        there = served.get("properties", {})
        if not there:
            return
        own = _own()
        missing = tuple(field for part in _PARTS for field in _more(own[part], there.get(part, {}), part))
        unknown = tuple(field for part in _PARTS for field in _more(there.get(part, {}), own[part], part))
        if missing and missing != self.missing:
            _LOG.warning(
                "the resource definition is older than this operator: the fields %s are lost. Apply the one of"
                " this version: kubectl apply --server-side --force-conflicts -f crds/gpudaskclusters.yaml",
                ", ".join(missing),
            )
        if unknown and unknown != self.unknown:
            _LOG.warning(
                "the resource definition is newer than this operator, which does nothing for %s: upgrade it",
                ", ".join(unknown),
            )
        self.missing, self.unknown, self._status = missing, unknown, there.get("status", {})
        self._is_settled = not missing

    def mark_doubtful(self) -> None:
        """Read it again soon: the API server refused a status, so the definition may have changed."""
        self._recheck.set()

    async def run(self, api: Kubernetes) -> None:
        """Read it again when it is in doubt, and now and then while the definition is older; never returns."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._is_settled else self._check_interval_seconds):
                    await self._recheck.wait()
            self._recheck.clear()
            try:
                await self.read(api)
            except ApiError as error:
                _LOG.warning("the resource's schema: %s", error)
                self._recheck.set()
            await asyncio.sleep(self._min_interval_seconds)

    def fit(self, status: Json) -> Json:
        """Remove from a status what the served definition does not allow: one value would cost all of it.

        The definitions of earlier versions list the types and reasons of conditions.
        """
        fitted = _fit(status, self._status)
        return fitted if isinstance(fitted, dict) else status


@cache
def _own() -> Json:
    """This operator's own fields, which take a while to find. Of their schema nothing else is kept: it takes memory."""
    schema = crd.render()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return {part: _fields(schema[part]) for part in _PARTS}


def _fields(schema: Json) -> Json:
    """What a schema has of fields, and nothing else."""
    found: Json = {"items": _fields(schema["items"])} if "items" in schema else {}
    if "properties" in schema:
        found["properties"] = {name: _fields(child) for name, child in schema["properties"].items()}
    return found


class _RefusedError(Exception):
    """A value is none of its schema's enum."""


def _of_resource(document: Json) -> Json:
    """The schema of the resource in the OpenAPI document of its group; empty: it is not there."""
    for schema in document.get("components", {}).get("schemas", {}).values():
        if any(kind.get("kind") == KIND for kind in schema.get("x-kubernetes-group-version-kind", ())):
            return dict(schema)
    return {}


def _more(one: Json, other: Json, path: str) -> Iterator[str]:
    """The fields of `one` that `other` lacks: the outermost of each, by path."""
    if "items" in one:
        yield from _more(one["items"], other.get("items", {}), path)
    there = other.get("properties")
    if there is None:
        return  # any shape, or not the same type at all
    for name, child in one.get("properties", {}).items():
        if name in there:
            yield from _more(child, there[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}"


def _fit(value: Any, schema: Json) -> Any:
    if "enum" in schema and value not in schema["enum"]:
        raise _RefusedError
    if isinstance(value, dict):
        return dict(_fitting_fields(value, schema))
    if isinstance(value, list):
        return list(_fitting_items(value, schema.get("items", {})))
    return value


def _fitting_fields(value: Json, schema: Json) -> Iterator[tuple[str, Any]]:
    fields, required = schema.get("properties", {}), schema.get("required", ())
    for name, child in value.items():
        try:
            yield name, _fit(child, fields.get(name, {}))
        except _RefusedError:
            if name in required:
                raise


def _fitting_items(items: list[Any], schema: Json) -> Iterator[Any]:
    for item in items:
        try:
            yield _fit(item, schema)
        except _RefusedError:
            continue


async def require_resource(api: Kubernetes, namespaces: tuple[str, ...]) -> None:
    """Check that the resource exists: kopf, with the rights that we have, would wait for it without a message.

    Checked in one namespace after another: one that was deleted, with our rights in it, means nothing for the others.

    Raises:
        ApiError: no namespace answers.
        ResourceMissingError: the CRD is not installed.
    """
    refusal: ApiError | None = None
    for where in [f"namespaces/{name}/" for name in namespaces] or [""]:
        try:
            await api.request("GET", f"/apis/{API_VERSION}/{where}{PLURAL}", query={"limit": "1"})
        except ApiError as error:
            if error.not_found:
                raise ResourceMissingError(
                    f"the API server knows no {PLURAL} of {API_VERSION}: install the chart's CRD,"
                    " kubectl apply --server-side --force-conflicts -f crds/gpudaskclusters.yaml"
                ) from error
            if not error.forbidden:
                raise
            refusal = error
        else:
            return
    if refusal is not None:
        raise refusal
