"""An operator of an earlier version on this version's definition: in an upgrade, which brings that first, or after one.

The earlier version is a real one, as it was in this repository's history, without what programs and the command line
import; a clone need not have that history. A newer one is put in its place by
`git archive COMMIT operator/gpudask/{*.py,api,clients,desired,handlers,planning,preload,reconcile,scaling} | xz -9e`.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import a_pool
from tests.planning.builders import scaled
from tests.reconcile.stage import OperatorProcess, Stage, operating

pytestmark = pytest.mark.api
OLDER = Path(__file__).with_name("older_operator.tar.xz")  # commit e1d9ab2
# Fields that it does not know, at all depths.
DEVICE = {"deviceMemoryLimit": "0.8", "rmmPoolSize": "8Gi", "preImport": ["cudf"]}
NEW = {"idle": {"deleteAfter": "1h"}, "network": {"allowFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the older version's package is."""
    directory = tmp_path_factory.mktemp("older")
    with tarfile.open(OLDER) as archive:
        archive.extractall(directory, filter="data")
    return directory / "operator"


@contextlib.contextmanager
def older_operator(stage: Stage, code: Path, log: Path) -> Iterator[None]:
    """The older operator, until the block ends; it must not have failed."""
    with OperatorProcess(stage.settings, log, code=code):
        yield
    said = log.read_text()
    assert "created pod" in said, f"it did nothing: {said}"
    assert "Traceback" not in said, said


async def uids(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await stage.list("pods")}


async def test_it_runs_clusters_and_leaves_alone_what_it_does_not_know(stage: Stage, older: Path, tmp_path: Path):
    written = (await stage.apply(a_pool(replicas=1), scaled("gpu", gpu=DEVICE), **NEW))["spec"]
    with older_operator(stage, older, tmp_path / "log"):
        await stage.shows("Ready", "True AllReady")
        assert await stage.condition("Isolated") == "None None: ", "that is no older operator"
        await (await stage.scheduler()).want(1, GPU=1)
        await stage.becomes(lambda: stage.names(pool="gpu"), ["demo-gpu-worker-0"])

        async def rows() -> list[tuple[str, int]]:
            return [(pool["name"], pool["ready"]) for pool in (await stage.status())["pools"]]

        await stage.becomes(rows, [("cpu", 1), ("gpu", 1)])
    assert (await stage.cluster())["spec"] == written


async def test_clusters_go_on_from_it_to_this_version_and_back(stage: Stage, older: Path, tmp_path: Path):
    with older_operator(stage, older, tmp_path / "before.log"):
        await stage.apply(a_pool(replicas=1), **NEW)
        await stage.shows("Ready", "True AllReady")
        first = await uids(stage)
    async with operating(stage.settings):
        await stage.shows("Isolated", "True NetworkPolicyApplied")
        await stage.apply(a_pool(replicas=2), **NEW)
        await stage.shows("Ready", "True AllReady")
        second = await uids(stage)
        assert first < second, "a pod was replaced"
    with older_operator(stage, older, tmp_path / "after.log"):
        await stage.apply(a_pool(replicas=3), **NEW)
        await stage.shows("Ready", "True AllReady")
        assert second < await uids(stage), "a pod was replaced"
    async with operating(stage.settings):
        await stage.shows("Isolated", "True NetworkPolicyApplied")
        assert second < await uids(stage), "a pod was replaced"
