"""The pytest plugin that stands for the conftest of dask-kubernetes: `-p tests.stock_suite.plugin --noconftest`.

That one starts kind, builds an image and runs the stock operator. Here a cluster with our operator is there, and the
image on its nodes. Tests ask for the same fixtures by the same names. It runs in the stock client's environment, so
it imports nothing of ours.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import time
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

import pytest

BUILT = "dask-kubernetes:dev"
"""The image that their conftest builds, and their manifests name."""
OWN_PROCESS = "up to here it passes; from here on it looks into the process of the stock operator"
_EXPECTED_SECONDS = 90  # for a test that is known to fail: some wait for what never comes
_SHOWN = "daskclusters,daskworkergroups,daskautoscalers,gpudaskclusters,pods,services"
_FORWARDED = re.compile(r":(\d+) -> ")
_READY_SECONDS, _POLL_SECONDS = 60.0, 0.2


class Cluster:
    """What their tests call of `pytest_kind.KindCluster`.

    Attributes:
        pods_shown: a test asked kubectl for Deployments, and was shown the Pods as well, which are here in their place.
    """

    def __init__(self, kubectl: str, kubeconfig: Path, image: str) -> None:
        self.kubeconfig_path = kubeconfig
        self.pods_shown = False
        self._kubectl = kubectl
        self._image = image

    def kubectl(self, *arguments: str) -> str:
        """Run it; what it printed. Manifests are applied with the image that the nodes have.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        line, manifest = list(arguments), None
        if line[:2] == ["get", "deployments"]:
            line[1], self.pods_shown = "deployments,pods", True
        if line[0] == "apply":
            place = line.index("-f") + 1
            manifest, line[place] = self._with_image(Path(line[place])), "-"
        return subprocess.run(
            self._command(*line), input=manifest, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    @contextmanager
    def port_forward(self, name: str, port: int, *arguments: str) -> Iterator[int]:
        """The local port that reaches `port` of a Service or a Pod.

        Of a Service once a pod behind it is ready: their tests begin when the pods are listed, which ours are at once.
        kubectl forwards to one that does not listen yet, and ends with the first connection, which their client tries
        once.

        Raises:
            RuntimeError: kubectl forwards none.
        """
        kind, _, service = name.partition("/")
        if kind == "service":
            self._wait_ready(service, *arguments)
        command = self._command("port-forward", name, f":{port}", *arguments)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as forward:
            try:
                assert forward.stdout is not None, "it is a pipe"
                said = forward.stdout.readline()  # Forwarding from 127.0.0.1:41234 -> 8786
                found = _FORWARDED.search(said)
                if found is None:
                    raise RuntimeError(f"kubectl port-forward {name} said {said!r}")
                yield int(found[1])
            finally:
                forward.terminate()

    def _wait_ready(self, service: str, *arguments: str) -> None:
        """Wait until a pod behind a Service is ready, so long as a test may last.

        Raises:
            RuntimeError: none is.
        """
        # `ready` says true of all that a Service publishes, be it ready or not
        ready = "jsonpath={.items[*].endpoints[*].conditions.serving}"
        deadline = time.monotonic() + _READY_SECONDS
        label = f"kubernetes.io/service-name={service}"
        while "true" not in self.kubectl("get", "endpointslices", "-l", label, "-o", ready, *arguments):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no pod behind the Service {service} is ready after {_READY_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def show(self, namespace: str) -> str:
        """What there is in a namespace, for a person who looks into a failure."""
        commands = (["get", _SHOWN, "-o", "wide"], ["get", "events", "--sort-by=.metadata.creationTimestamp"])
        done = [
            subprocess.run(self._command(*command, "-n", namespace), capture_output=True, text=True, check=False)
            for command in commands
        ]
        return "\n".join(each.stdout + each.stderr for each in done)

    def _command(self, *arguments: str) -> list[str]:
        return [self._kubectl, f"--kubeconfig={self.kubeconfig_path}", *arguments]

    def _with_image(self, path: Path) -> str:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        return "\n---\n".join(file.read_text() for file in files).replace(BUILT, self._image)


class Runner:
    """In place of kopf's, which runs the stock operator in the test's process: ours runs on the cluster."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> NoReturn:
        """Its exit code, its exception and its log are what no other operator has."""
        pytest.skip(OWN_PROCESS)


_CLUSTER = pytest.StashKey[Cluster]()
_RESULTS = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("the cluster with our operator")
    for name in ("kubectl", "kubeconfig", "image", "expected", "results"):
        group.addoption(f"--stock-{name}", required=True)


def pytest_configure(config: pytest.Config) -> None:
    kubeconfig = Path(config.getoption("--stock-kubeconfig"))
    config.stash[_CLUSTER] = Cluster(config.getoption("--stock-kubectl"), kubeconfig, config.getoption("--stock-image"))
    config.stash[_RESULTS] = Path(config.getoption("--stock-results"))
    os.environ["KUBECONFIG"] = str(kubeconfig)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    expected = tomllib.loads(Path(config.getoption("--stock-expected")).read_text())
    for item in items:
        if reason := expected["not_applicable"].get(_function(item)):
            item.add_marker(pytest.mark.skip(reason=reason))
        if _function(item) in expected["failed"]:
            item.add_marker(pytest.mark.timeout(_EXPECTED_SECONDS, func_only=True), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield
    namespace = getattr(item, "funcargs", {}).get("namespace")
    if report.failed and namespace:
        report.sections.append((f"namespace {namespace}", item.config.stash[_CLUSTER].show(namespace)))
    if report.when == "call" or not report.passed:
        _record(item, report)
    return report


def _record(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add a line of JSON for `report.read`; a test whose end fails as well has two."""
    cluster = item.config.stash[_CLUSTER]
    text = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
    crash = getattr(report.longrepr, "reprcrash", None)
    line = {
        "test": item.name,
        "function": _function(item),
        "outcome": report.outcome,
        "seconds": round(report.duration, 1),
        "text": text or (crash.message if crash else ""),
        "pods_shown": cluster.pods_shown,
    }
    with item.config.stash[_RESULTS].open("a") as results:
        results.write(json.dumps(line) + "\n")


def _function(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", None) or item.name)


@pytest.fixture(scope="session")
def docker_image(request: pytest.FixtureRequest) -> str:
    """The image of Dask's pods, which the nodes have."""
    return str(request.config.getoption("--stock-image"))


@pytest.fixture
def k8s_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster that is there."""
    cluster = request.config.stash[_CLUSTER]
    cluster.pods_shown = False
    return cluster


@pytest.fixture(autouse=True)
def namespace(k8s_cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    name = "stock-" + uuid.uuid4().hex[:10]
    k8s_cluster.kubectl("create", "ns", name)
    yield name
    k8s_cluster.kubectl("delete", "ns", name, "--wait=false", "--ignore-not-found=true")


@pytest.fixture(autouse=True)
def pullable(request: pytest.FixtureRequest, docker_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs that a test makes without an image have the one that the nodes have, not the latest of a registry."""
    made: Any = getattr(request.module, "make_cluster_spec", None)
    if made is not None:
        monkeypatch.setattr(request.module, "make_cluster_spec", functools.partial(made, image=docker_image))


@pytest.fixture
def kopf_runner() -> Runner:
    """The operator that runs already."""
    return Runner()


@pytest.fixture
def anyio_backend() -> str:
    """As theirs."""
    return "asyncio"
