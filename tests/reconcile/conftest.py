"""A stage in a namespace of its own for each test, and an operator on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings
from tests.kubectl import Kubectl
from tests.reconcile.proxy import Proxy
from tests.reconcile.stage import Stage, operating, staged


@pytest.fixture
async def stage(in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A namespace with a fake node; no operator runs."""
    assert in_namespace.kubeconfig is not None
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with staged(in_namespace.kubeconfig, in_namespace.namespace) as stage:
        yield stage


@pytest.fixture
async def operator(stage: Stage) -> AsyncIterator[Operator]:
    """The operator, for the stage's namespace."""
    async with operating(stage.settings) as running:
        yield running


@pytest.fixture
async def proxy(stage: Stage) -> AsyncIterator[Proxy]:
    """What stands between the operator and the API server, and can cut its watches."""
    proxy = Proxy(stage.kubeconfig)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
def through(stage: Stage, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An operator's settings, by which it speaks to the API server through the proxy."""
    kubeconfig = str(proxy.kubeconfig(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    return replace(stage.settings, kubeconfig=kubeconfig)
