"""Fixtures that several parts of the tests share: the API-only server, and kubectl on it."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts tests in the background has them ignore Ctrl-C, which tests send to programs and to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # `local` and `tests` are packages of the checkout, not installed ones

from local.clusters.api_server import ApiServer  # noqa: E402
from local.host.progress import QUIET  # noqa: E402
from local.programs.binaries import ensure_commands  # noqa: E402
from tests.isolation import isolated, watch_sockets  # noqa: E402
from local.programs.prometheus import Prometheus, ensure_prometheus  # noqa: E402
from tests.kubectl import Kubectl, find_kubectl  # noqa: E402
from tests.make_variables import forget_make  # noqa: E402
from tests.releases.environment import RAN_ELSEWHERE  # noqa: E402

CRD = ROOT / "crds" / "gpudaskclusters.yaml"
RECORD_CRD = ROOT / "crds" / "gpudaskrecords.yaml"
JOB_CRD = ROOT / "crds" / "gpudaskjobs.yaml"
CRON_JOB_CRD = ROOT / "crds" / "gpudaskcronjobs.yaml"
_REAL_DASK = {"preload", "kubecluster", "examples", "histories"}  # folders whose tests start schedulers and workers
_MARKED_FOLDERS = {"dask": _REAL_DASK, "e2e": {"e2e"}}
_UNWANTED, _ALL_UNWANTED = re.compile(r"not (\w+)"), re.compile(r"not \w+(?: and not \w+)*")
_FILES_MARKS = re.compile(r"^pytestmark = (?:\[[^\]]*\]|.*)$", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.(\w+)")
# One runs the preload's tests under other releases of distributed, two minutes, the other random histories, a minute,
# and those on the real cluster take two to five minutes a file: nobody should wait for them alone at the end.
_LONGEST = {
    ROOT / "tests/preload/test_releases.py",
    ROOT / "tests/histories/test_histories.py",
    *(ROOT / f"tests/e2e/test_{name}.py" for name in ("jobs", "jupyterlab", "kubecluster", "rollout", "told")),
}
_numbers = itertools.count(1)

forget_make(os.environ)
watch_sockets()

# The machine may be busy: how long an example took says nothing about the code. Properties are tried with the same
# examples each time, so that a test which fails here fails everywhere; `make properties` draws new ones.
_FIXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("fixed", _FIXED)
settings.register_profile("new", _FIXED, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("GPUDASK_EXAMPLES", "fixed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew; then read their diff")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files all of whose tests are unwanted: their imports take longer than the fast tests."""
    unwanted = (
        set(_UNWANTED.findall(config.option.markexpr)) if _ALL_UNWANTED.fullmatch(config.option.markexpr) else None
    )
    if not unwanted:
        return None
    if collection_path.is_dir():
        marks = [mark for mark, folders in _MARKED_FOLDERS.items() if collection_path.name in folders]
    elif collection_path.suffix == ".py":
        marks = _MARK.findall("".join(_FILES_MARKS.findall(collection_path.read_text())))
    else:
        return None
    return True if unwanted.intersection(marks) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    starts_dask = cache(lambda path: bool(_REAL_DASK.intersection(path.relative_to(ROOT / "tests").parts)))
    for item in items:
        if starts_dask(item.path):
            item.add_marker(pytest.mark.dask)
    items.sort(key=lambda item: item.path not in _LONGEST)


def pytest_collection_finish() -> None:
    """Set apart what collection made: what lives as long as the process is not to be walked through again and again.

    Else a tenth of all time goes by in full collections of the modules that the tests import.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what tests ran in other environments: of a test that passes nothing else is shown."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == RAN_ELSEWHERE:
                terminalreporter.write_line(f"{report.nodeid} ran: {value}")


@pytest.fixture(autouse=True)
def nothing_is_left_to_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """See `tests/isolation.py`."""
    with isolated(request.node.nodeid):
        yield


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written, not compared; the environment's UPDATE_GOLDEN=1 says so too."""
    return bool(request.config.getoption("--update-golden") or os.environ.get("UPDATE_GOLDEN"))


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """etcd and kube-apiserver, without nodes or controllers: `.kubeconfig`, `.kubectl`, `.restart()`."""
    server = ApiServer.start(f"tests-{os.getpid()}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer) -> Kubectl:
    """kubectl as the API-only server's administrator."""
    return Kubectl(str(api_server.kubectl), api_server.kubeconfig)


@pytest.fixture(scope="session")
def with_crd(kubectl: Kubectl) -> Kubectl:
    """kubectl on a server that knows GpuDaskCluster, and what goes with it."""
    kubectl.define(CRD, RECORD_CRD, JOB_CRD, CRON_JOB_CRD)
    return kubectl


@pytest.fixture
def in_namespace(api_server: ApiServer, with_crd: Kubectl) -> Kubectl:
    """The same in a namespace of the test's own. No controller runs, so it is left behind."""
    namespace = f"test-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api_server.api.apply(f"/api/v1/namespaces/{namespace}", body)  # hundreds of tests have one
    return with_crd.inside(namespace)


@pytest.fixture(scope="session")
def kubectl_local() -> Kubectl:
    """kubectl for what needs no cluster: the machine's, else built, which takes minutes the first time."""
    return Kubectl(find_kubectl() or str(ensure_commands(QUIET) / "kubectl"))


@pytest.fixture(scope="session")
def prometheus() -> Prometheus:
    """Prometheus and promtool: `.server`, `.promtool`. Debian's, fetched the first time: mark its tests `registry`."""
    return ensure_prometheus(QUIET)
