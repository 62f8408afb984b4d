"""The prepared cluster, a namespace for each test that wants one, and what was seen where a test fails."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
for _place in (_HERE / "uploaded", _HERE.parent / "e2e" / "uploaded", _HERE.parents[1]):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))  # the uploaded modules are importable here as on the workers

from local.clusters.cluster import Cluster  # noqa: E402
from local.layout import REPOSITORY  # noqa: E402
from tests.e2e.platform import Platform  # noqa: E402
from tests.e2e.provider import LocalProvider  # noqa: E402
from tests.e2e.space import Space  # noqa: E402
from tests.gpu.device_files import why_not  # noqa: E402
from tests.gpu.results import Results  # noqa: E402

_results = pytest.StashKey[Results]()


def pytest_configure(config: pytest.Config) -> None:
    if not why_not():
        directory = os.environ.get("GPUDASK_RESULTS") or REPOSITORY / "build" / "gpu-results"
        config.stash[_results] = Results(Path(directory))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here. First what shares a cluster, then pods with many GPUs, then the rest."""
    reason = why_not()
    is_here = cache(lambda path: _HERE in path.parents)  # of all tests of the house
    for item in items:
        if reason and is_here(item.path):
            item.add_marker(pytest.mark.skip(reason=reason))
    if not reason:
        items.sort(
            key=lambda item: (
                item.path.parent.name != "one_gpu_pods",
                item.path.name not in ("test_pool.py", "test_multi_gpu.py", "test_ucx.py"),
            )
        )


@pytest.fixture(scope="session")
def platform(pytestconfig: pytest.Config) -> Platform:
    """The cluster that `python -m tests.gpu` has brought up, with its operator."""
    platform = Platform(LocalProvider(Cluster.find()), "")
    pytestconfig.stash[_results].describe(platform.kubectl)
    return platform


@pytest.fixture(scope="session")
def gpus(platform: Platform) -> int:
    """How many GPUs Kubernetes has to give."""
    nodes = json.loads(platform.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    return sum(int(node["status"]["allocatable"].get("nvidia.com/gpu", "0")) for node in nodes)


@pytest.fixture
def several_gpus(gpus: int) -> int:
    """How many there are, for a test that needs two."""
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs, and there is {gpus}")
    return gpus


@pytest.fixture
def room(platform: Platform) -> Iterator[Space]:
    """A namespace of the test's own."""
    with Space.opened(platform, pod_security="privileged") as space:  # the driver comes by hostPath
        yield space


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show what there is at the moment of the failure, before fixtures take it away."""
    outcome = yield
    report = outcome.get_result()
    results = item.config.stash.get(_results, None)
    if results is None:
        return
    if report.failed:
        for space in _spaces(item).values():
            results.note(item.name, _seen(space))
    results.add(report)


def _spaces(item: pytest.Item) -> dict[str, Space]:
    """Where a test works, by namespace: its own, or that which it shares with others."""
    found = [getattr(value, "space", value) for value in item.funcargs.values()]
    return {str(space.kubectl.namespace): space for space in found if isinstance(space, Space)}


def _seen(space: Space) -> str:
    names = space.kubectl.attempt("get", "pods", "-o", "name").stdout.split()
    logs = [
        f"== {name}\n{space.kubectl.attempt('logs', name, '--tail=40', '--all-containers').stdout}" for name in names
    ]
    logs += [f"== {name}, before it began again\n{last}" for name in names if (last := _last_log(space, name))]
    events = space.kubectl.attempt("get", "events", "--sort-by=.metadata.creationTimestamp").stdout
    return "\n".join([space.show(), *logs, events, space.platform.operator_log()])


def _last_log(space: Space, name: str) -> str:
    """What the last container of a pod wrote that began again; empty for another."""
    return space.kubectl.attempt("logs", name, "--tail=40", "--previous").stdout
