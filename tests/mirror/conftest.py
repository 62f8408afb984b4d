"""The fixtures of the operator's own tests: what needs an API server runs on the same stage; and the stock client's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from dask_kubernetes.operator.kubecluster import kubecluster as module
from distributed import Scheduler

from gpudask.reconcile.operator import Operator
from tests.conftest import ROOT
from tests.kubectl import Kubectl
from tests.mirror.stock import Stock
from tests.reconcile.conftest import operator, proxy, stage, through
from tests.reconcile.stage import Stage, operating

__all__ = ["operator", "proxy", "stage", "through"]


@pytest.fixture(scope="module")
def definitions(kubectl: Kubectl) -> None:
    kubectl.define(ROOT / "crds" / "mirror.yaml")


@pytest.fixture
def stock(stage: Stage, definitions: None) -> Stock:
    return Stock(stage)


@pytest.fixture
async def mirroring(stage: Stage, definitions: None) -> AsyncIterator[Operator]:
    async with operating(replace(stage.settings, mirror=True)) as running:
        yield running


@pytest.fixture
async def scheduler(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A Dask scheduler where the stock client would have a port-forward to one."""
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0") as running:

        async def address(*_: Any, **__: Any) -> str:
            return str(running.address)

        monkeypatch.setattr(module, "get_scheduler_address", address)
        yield
