"""The platform once, a namespace for each test, and a report where one fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "uploaded"))  # what the tasks do, importable here as on the workers

from tests.conftest import ROOT
from tests.e2e.platform import Platform
from tests.e2e.provider import ProviderError, chosen, why_not
from tests.e2e.space import Space

_HANGS_SECONDS = 900  # what a test waits for has limits of its own, which say more


def pytest_configure() -> None:
    try:
        chosen()
    except ProviderError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e/" in str(item.path):
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_HANGS_SECONDS))
        mark = item.get_closest_marker("local_cluster")
        if mark is not None and (reason := why_not(*mark.args, chosen())):
            item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: item.path.name == "test_local_cluster.py")  # it ends the cluster that all share


@pytest.fixture(scope="session")
def platform() -> Platform:
    """The cluster that the tests run on, with the operator."""
    return Platform.up()


@pytest.fixture
def space(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace of the test's own, of the Pod Security level that its mark says."""
    mark = request.node.get_closest_marker("pod_security")
    level = mark.args[0] if mark else "restricted"
    with Space.opened(platform, pod_security=level) as room:
        yield room
        outcome = getattr(request.node, "outcome_of_call", None)
        if outcome is not None and outcome.failed:
            print(room.show())
            print(room.kubectl.attempt("get", "events", "--sort-by=.metadata.creationTimestamp").stdout)
            print(platform.operator_log())


@pytest.fixture(scope="module")
def mirror(platform: Platform) -> Iterator[None]:
    """The operator with the mirror for the stock client; afterwards as it was."""
    platform.install("mirror.enabled=true")
    yield
    platform.install()
    platform.kubectl("delete", "-f", str(ROOT / "crds" / "mirror.yaml"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.outcome_of_call = report
