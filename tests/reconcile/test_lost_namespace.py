"""One watched namespace is deleted, and the rights in it: the others go on, and it comes back when it is allowed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpudask.settings import Settings
from tests.builders import a_pool
from tests.kubectl import Kubectl
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import Stage, eventually, operating, staged

pytestmark = pytest.mark.api


@pytest.fixture
def other(stage: Stage, with_crd: Kubectl) -> str:
    """A second namespace."""
    name = f"{stage.namespace}-other"
    with_crd("create", "namespace", name)
    return name


@pytest.mark.parametrize("since", ["the start", "later"])
async def test_it_stops_no_other_and_comes_back(
    *, since: str, stage: Stage, other: str, proxy: Proxy, through: Settings, caplog: pytest.LogCaptureFixture
):
    if since == "the start":
        await proxy.refuse(other)
    settings = replace(through, watch_namespaces=(other, stage.namespace))
    async with operating(settings) as operator, staged(Path(stage.kubeconfig), other) as lost:
        await stage.apply(a_pool(replicas=1))
        await stage.shows("Ready", "True AllReady")
        await proxy.refuse(other)
        await eventually(lambda: _knows(operator, other), lambda knows: not knows, "it is known that it is lost")
        await stage.apply(a_pool(replicas=3))
        await eventually(stage.names, lambda names: len(names) == 3, "the other goes on")
        assert operator.trouble() == ""
        assert [record for record in caplog.records if "what is there is unknown until then" in record.message], (
            "it is told"
        )
        proxy.refused.clear()
        await lost.apply(a_pool(replicas=2))
        await eventually(lost.names, lambda names: len(names) == 2, "it is back", seconds=90)


async def _knows(operator: object, namespace: str) -> bool:
    return bool(operator._context.knows(namespace))  # type: ignore[attr-defined]
