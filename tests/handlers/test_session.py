"""kopf goes on watching whatever a cluster's spec holds: here with its own watch, on a server that answers as asked."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

import kopf
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kopf._cogs.clients import auth, watching
from kopf._cogs.structs import credentials, references

from gpudask.api.resource import GROUP, KIND, PLURAL, VERSION, InvalidSpecError, parse
from gpudask.handlers import session

RESOURCE = references.Resource(GROUP, VERSION, PLURAL, kind=KIND, namespaced=True)
FEW_LEVELS, MANY_LEVELS = 3, 9_000


def cluster(uid: str, depth: int) -> str:
    """A cluster of this uid whose configuration is so deep, as JSON: Python cannot write it either."""
    metadata = {"name": "demo", "namespace": "default", "uid": uid, "resourceVersion": "1"}
    config = '{"a":' * depth + "1" + "}" * depth
    return (
        f'{{"metadata": {json.dumps(metadata)}, "spec": {{"image": "i", "pools": [{{"name": "cpu"}}],'
        f' "config": {config}}}}}'
    )


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, Json]]:
    """A server, by its address, and what it lists and tells."""
    told: Json = {"list": [], "watch": []}

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            text = f'{{"metadata": {{"resourceVersion": "1"}}, "items": [{",".join(told["list"])}]}}'
            return web.Response(text=text, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        for body in told["watch"]:
            await response.write(f'{{"type": "ADDED", "object": {body}}}\n'.encode())
        await asyncio.sleep(30)
        return response

    app = web.Application()
    app.router.add_get(f"/apis/{GROUP}/{VERSION}/{PLURAL}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")), told


async def seen_by_kopf(info: credentials.KubeContext, count: int) -> list[Json]:
    """The first `count` objects that kopf's watch yields."""
    found: list[Json] = []
    vault = credentials.Vault({"here": info})  # type: ignore[dict-item]
    auth.vault_var.set(vault)
    settings = kopf.OperatorSettings()
    try:
        async with asyncio.timeout(120):
            events = watching.infinite_watch(settings=settings, resource=RESOURCE, namespace=None)
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    if not isinstance(event, watching.Bookmark):
                        found.append(event["object"])  # type: ignore[arg-type]
                        if len(found) == count:
                            return found
    finally:
        await vault.close()
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_kopf_alone_ends_its_watch_at_a_deep_object(served: tuple[str, Json], where: str):
    """Why there is a session of ours: without this there would be no need for it."""
    address, told = served
    told[where] = [cluster("deep", MANY_LEVELS), cluster("flat", FEW_LEVELS)]
    with pytest.raises(RecursionError):
        await seen_by_kopf(kopf.ConnectionInfo(server=address), 2)


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_a_deep_object_is_seen_cut_and_those_after_it_whole(served: tuple[str, Json], where: str):
    address, told = served
    told[where] = [cluster("deep", MANY_LEVELS), cluster("flat", FEW_LEVELS)]
    deep, flat = await seen_by_kopf(session(kopf.ConnectionInfo(server=address)), 2)
    assert (deep["metadata"]["uid"], flat["metadata"]["uid"]) == ("deep", "flat")
    assert flat["spec"]["config"] == {"a": {"a": {"a": 1}}}
    with pytest.raises(InvalidSpecError, match=r"^spec\.config: nested more than"):
        parse(deep)


async def test_an_object_that_nobody_can_read_is_left_out(served: tuple[str, Json], caplog: pytest.LogCaptureFixture):
    address, told = served
    told["watch"] = ['{"type": "ADDED", "object": ' + "[" * 200, cluster("flat", FEW_LEVELS)]
    with caplog.at_level(logging.ERROR, logger="gpudask.handlers"):
        (flat,) = await seen_by_kopf(session(kopf.ConnectionInfo(server=address)), 1)
    assert flat["metadata"]["uid"] == "flat"
    assert "cannot be read, and is skipped" in caplog.text


async def test_lines_of_a_megabyte_are_read_whole(served: tuple[str, Json]):
    address, told = served
    body = json.loads(cluster("large", FEW_LEVELS))
    body["spec"]["config"] = {"x": ["v" * 100] * 10_000}
    told["watch"] = [json.dumps(body), cluster("flat", FEW_LEVELS)]
    large, flat = await seen_by_kopf(session(kopf.ConnectionInfo(server=address)), 2)
    assert (large, flat["metadata"]["uid"]) == (body, "flat")


async def test_a_session_is_that_of_its_credentials():
    one, same, other = (session(kopf.ConnectionInfo(server="http://x", token=token)) for token in "aab")
    try:
        assert one == same
        assert one != other
        assert one.aiohttp_session.headers["Authorization"] == "Bearer a"
    finally:
        for made in (one, same, other):
            await made.aiohttp_session.close()
