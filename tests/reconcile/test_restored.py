"""An API server says how far it is, as `clients.reflector` asks it."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api.resource import LABEL_CLUSTER
from gpudask.clients.reflector import Reflector
from gpudask.reconcile.context import observe_owned
from tests.builders import a_pool
from tests.reconcile.stage import Stage

pytestmark = pytest.mark.api


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_version_of_the_past_is_reached_and_one_of_the_future_is_not(stage: Stage, *, metadata_only: bool):
    made = await stage.apply(a_pool())
    cache: Reflector[Any] = Reflector(
        stage.api,
        f"/api/v1/namespaces/{stage.namespace}/services",
        label=LABEL_CLUSTER,
        reduce=observe_owned("Service"),
        changed=lambda _: None,
        metadata_only=metadata_only,
    )
    reached = await cache._list()
    assert await cache._has_reached(reached)
    assert await cache._has_reached(made["metadata"]["resourceVersion"])
    assert not await cache._has_reached(str(int(reached) + 10**9))
