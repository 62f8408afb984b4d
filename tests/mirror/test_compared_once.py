"""What a served DaskCluster costs of which nothing changes: its spec is compared with what serves it once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.spec import Spec
from gpudask.mirror import objects
from gpudask.mirror.serving import Serving
from tests.mirror.test_untrue_answers import OURS, Mirrored
from tests.reconcile.in_memory import operated
from tests.stock.test_served import a_cluster

KEY = "default/demo"


class Served:
    """A DaskCluster that is served."""

    def __init__(self, mirrored: Mirrored) -> None:
        self.server = mirrored.server
        self.serving = Serving(mirrored.on.context, mirrored.definitions, lambda _: self.body(), lambda _: None)
        self.validations = 0

    def body(self) -> Json | None:
        """What serves it, as any copy that comes: it shares no object with another one."""
        found: Json | None = json.loads(json.dumps(self.server.objects.get(OURS)))
        return found

    def set(self, **spec: Any) -> None:
        """Somebody changes what serves it, or the API server its defaults."""
        there = self.server.objects[OURS]
        self.server.put(OURS, there | {"spec": there["spec"] | spec})

    async def replace_spec(self, body: Json, spec: Json) -> Json:
        """As the API server in memory has no JSON patches."""
        self.server.put(OURS, body | {"spec": spec})
        return self.server.objects[OURS]

    async def pass_(self) -> None:
        await self.serving._pass(KEY)


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    validate = Spec.model_validate
    async with operated() as on:
        mirrored = Mirrored(on)
        served = Served(mirrored)

        def counting(*args: Any, **rest: Any) -> Spec:
            served.validations += 1
            return validate(*args, **rest)

        monkeypatch.setattr(mirrored.server, "replace_spec", served.replace_spec)
        document = a_cluster()
        document["metadata"]["uid"] = "stock-1"
        mirrored.put(objects.CLUSTER, document)
        await served.pass_()
        served.set(protocol="tcp")  # the definition's default
        monkeypatch.setattr(Spec, "model_validate", counting)
        yield served


async def test_passes_over_what_has_not_changed_validate_its_two_specs_once(served: Served) -> None:
    for _ in range(5):
        await served.pass_()
    assert served.validations <= 2
    assert served.server.objects[OURS]["spec"]["protocol"] == "tcp", "it is the same"


async def test_what_somebody_changes_after_that_is_changed_back(served: Served) -> None:
    await served.pass_()
    served.set(image="another")
    await served.pass_()
    assert served.server.objects[OURS]["spec"]["image"] == "x"
    served.set(image="another")
    await served.pass_()
    assert served.server.objects[OURS]["spec"]["image"] == "x", "each time"
