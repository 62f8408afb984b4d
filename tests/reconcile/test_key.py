"""The operator's key: made once, and never one that anybody could guess."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gpudask.reconcile.operator import KeyRefusedError, _operator_key
from tests.clients.fake_api_server import FakeApiServer, refusal

PATH = "/api/v1/namespaces/system/secrets/gpudask-key"


def secret(**data: str) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": "gpudask-key"}, "data": data}


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


async def test_it_is_made_where_there_is_none_and_kept():
    server = FakeApiServer()
    key = await _operator_key(server, "system", "gpudask-key")
    assert len(key) == 32
    assert await _operator_key(server, "system", "gpudask-key") == key


@pytest.mark.parametrize(
    ("found", "came"),
    [
        ({"kind": "Secret", "metadata": {"name": "gpudask-key"}}, "it has none"),
        (secret(), "it has none"),
        (secret(other=encoded(b"x" * 32)), "it has none"),
        (secret(key=""), "0 bytes"),
        (secret(key=encoded(b"short")), "5 bytes"),
        (secret(key="not base64!"), "no base64"),
    ],
)
async def test_an_empty_or_short_key_is_refused_with_what_to_do(found: dict[str, Any], came: str):
    server = FakeApiServer()
    server.put(PATH, found)
    with pytest.raises(KeyRefusedError) as caught:
        await _operator_key(server, "system", "gpudask-key")
    assert "Secret system/gpudask-key: data.key" in str(caught.value)
    assert came in str(caught.value)
    assert "kubectl -n system delete secret gpudask-key" in str(caught.value)


async def test_what_another_operator_made_meanwhile_counts():
    server = FakeApiServer()
    server.put(PATH, secret(key=encoded(b"k" * 32)))
    server.fail("GET", PATH, refusal(404, "not found", "NotFound"), times=1)
    assert await _operator_key(server, "system", "gpudask-key") == b"k" * 32
