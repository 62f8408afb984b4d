"""The check for the installed CRD: one namespace that is gone does not fail it for the others."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.clients.errors import ApiError
from gpudask.reconcile.served_schema import ResourceMissingError, require_resource


class Answers:
    """An API server that answers each namespace with a status; 200 where nothing else is said."""

    def __init__(self, **statuses: int) -> None:
        self._statuses = statuses

    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        status = next((code for name, code in self._statuses.items() if f"/{name}/" in path), 200)
        if status != 200:
            raise ApiError(status, "", "", f"{method} {path}")
        return {}


async def test_a_namespace_that_was_deleted_with_the_rights_in_it_hides_no_other():
    await require_resource(Answers(a=403), ("a", "b"))  # type: ignore[arg-type]


async def test_no_namespace_that_answers_is_tried_again():
    with pytest.raises(ApiError, match="403"):
        await require_resource(Answers(a=403, b=403), ("a", "b"))  # type: ignore[arg-type]


async def test_an_api_server_that_fails_is_tried_again():
    with pytest.raises(ApiError, match="500"):
        await require_resource(Answers(a=500), ("a", "b"))  # type: ignore[arg-type]


async def test_a_missing_crd_is_told_also_by_the_second_namespace():
    with pytest.raises(ResourceMissingError, match="kubectl apply"):
        await require_resource(Answers(a=403, b=404), ("a", "b"))  # type: ignore[arg-type]
