"""The resource's definition of another version than the operator's: what differs is logged, and costs nothing else."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from gpudask.api import crd
from gpudask.clients.errors import ApiError
from gpudask.reconcile.served_schema import ServedSchema
from tests.builders import a_pool
from tests.conftest import CRD
from tests.kubectl import Kubectl
from tests.planning.builders import gpu_pool
from tests.reconcile.stage import Stage, defined, eventually, operating, staged_alone

OLDER = Path(__file__).with_name("older_definition.yaml")


class Api:
    """Answers with OpenAPI documents, one after another; the last one for ever."""

    def __init__(self, *answers: Json | ApiError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def request(self, _verb: str, _path: str) -> Json:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def schema_of(definition: Json) -> Json:
    found: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def document(definition: Json) -> Json:
    kind = {"group": "gpudask.dev", "version": "v1alpha1", "kind": "GpuDaskCluster"}
    named = schema_of(definition) | {"x-kubernetes-group-version-kind": [kind]}
    return {"components": {"schemas": {"other": {}, "dev.gpudask.v1alpha1.GpuDaskCluster": named}}}


CURRENT, OLD = crd.render(), yaml.safe_load(OLDER.read_text())


async def read(*answers: Json | ApiError) -> ServedSchema:
    schema = ServedSchema(check_interval_seconds=0.001, min_interval_seconds=0.001)
    await schema.read(Api(*answers))  # type: ignore[arg-type]
    return schema


async def test_the_current_one_lacks_nothing():
    schema = await read(document(CURRENT))
    assert (schema.missing, schema.unknown) == ((), ())


async def test_an_older_one_is_told_with_the_fields_that_are_lost(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        schema = await read(document(OLD))
    assert "spec.network" in schema.missing
    assert "older than this operator: the fields" in caplog.text
    assert "kubectl apply --server-side --force-conflicts -f crds/gpudaskclusters.yaml" in caplog.text


async def test_a_newer_one_is_told(caplog: pytest.LogCaptureFixture):
    newer = yaml.safe_load(yaml.safe_dump(CURRENT))
    pools = schema_of(newer)["properties"]["spec"]["properties"]["pools"]["items"]["properties"]
    pools["tpu"] = {"type": "object", "properties": {"count": {"type": "integer"}}}
    with caplog.at_level(logging.WARNING):
        schema = await read(document(newer))
    assert (schema.missing, schema.unknown) == ((), ("spec.pools.tpu",))
    assert "newer than this operator, which does nothing for spec.pools.tpu: upgrade it" in caplog.text


async def test_one_that_cannot_be_read_is_taken_for_ours():
    schema = await read(ApiError(403, "Forbidden", "no", "GET"))
    status = {"conditions": [{"type": "Isolated", "reason": "Anything"}]}
    assert schema.missing == ()
    assert schema.fit(status) == status


@contextlib.asynccontextmanager
async def followed(schema: ServedSchema, *answers: Json | ApiError) -> AsyncIterator[Api]:
    api = Api(*answers)
    following = asyncio.create_task(schema.run(api))  # type: ignore[arg-type]
    yield api
    following.cancel()


async def shows(schema: ServedSchema, *, missing: bool) -> None:
    async def lacks() -> bool:
        return bool(schema.missing)

    await eventually(lacks, lambda found: found is missing, f"fields are missing: {missing}")


async def test_it_is_looked_at_again_until_it_is_current():
    schema = await read(document(OLD))
    async with followed(schema, ApiError(500, "InternalError", "no", "GET"), document(OLD), document(CURRENT)):
        await shows(schema, missing=False)


async def test_one_that_is_not_in_the_document_yet_is_looked_for():
    """The API server had established the definition, and not yet told of it: it was taken for ours, for good."""
    schema = await read({"components": {"schemas": {}}})
    async with followed(schema, {"components": {}}, document(OLD)):
        await shows(schema, missing=True)


async def test_a_status_that_is_refused_brings_it_in_doubt():
    """Somebody applied an older definition while the operator ran."""
    schema = await read(document(CURRENT))
    async with followed(schema, document(OLD)) as api:
        await asyncio.sleep(0.05)
        assert (api.asked, schema.missing) == (0, ()), "nobody has doubted it"
        schema.mark_doubtful()
        await shows(schema, missing=True)


async def test_what_the_definition_refuses_is_left_out_of_a_status_and_nothing_else():
    schema = await read(document(OLD))
    conditions = [
        {"type": "Ready", "status": "True", "reason": "AllReady"},
        {"type": "Isolated", "status": "True", "reason": "AllReady"},
        {"type": "Accepted", "status": "False", "reason": "LimitExceeded"},
    ]
    fitted = schema.fit({"phase": "Ready", "conditions": conditions, "neverHeardOf": 1})
    assert fitted == {"phase": "Ready", "conditions": conditions[:1], "neverHeardOf": 1}


@pytest.fixture(scope="module")
def older() -> Iterator[Kubectl]:
    with defined("older", OLDER) as kubectl:
        yield kubectl


@pytest.fixture
async def stage(older: Kubectl, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with staged_alone(older, monkeypatch) as stage:
        yield stage


@pytest.mark.api
async def test_clusters_of_an_older_definition_run_and_say_so(stage: Stage, older: Kubectl):
    """Their whole status was refused for one reason that the definition does not list, and nobody saw anything."""
    async with operating(stage.settings):
        await stage.apply(a_pool(replicas=1), gpu_pool(idle="1s"))
        await stage.shows("Ready", "True AllReady")
        scheduler = await stage.scheduler()
        await scheduler.want(1, GPU=1)
        await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])
        assert await stage.condition("Isolated") == "None None: ", "left out"
    older.define(CRD)
    async with operating(stage.settings):
        await stage.shows("Isolated", "True NetworkPolicyApplied")
        assert await stage.names(pool="gpu") == ["demo-gpu-worker-0"]
    await stage.delete_cluster()
