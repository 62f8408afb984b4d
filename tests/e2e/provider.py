"""The Kubernetes that the tests run on: the local cluster, or one with two nodes whose kubeconfig is given.

All that differs between them stands here. The environment says which one it is: `make test-e2e` puts it there. A test
that needs what only the local cluster can do has the mark `local_cluster`, with the reason, and is skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol

from gpudask.api import Json
from local.clusters.cluster import Cluster
from local.demo.overlay import IMAGE
from local.errors import LocalClusterError
from local.host.lock import exclusive
from local.host.progress import QUIET, Steps
from local.images.build import build_images
from local.layout import Layout
from local.operator.release import EVERYTHING, Tools, install_checkout, install_operator
from local.programs.binaries import find_commands
from tests.kubectl import Kubectl

E2E_KUBECONFIG, E2E_IMAGE, E2E_OPERATOR_IMAGE = _VARIABLES = ("E2E_KUBECONFIG", "E2E_IMAGE", "E2E_OPERATOR_IMAGE")
_GPU = "nvidia.com/gpu"
_GPUS = 4  # that a test takes at a time, at most
_NODES = 2
_PULL_SECONDS = 300  # for the operator's image
_SCHEDULER_PORT = 8786


class ProviderError(Exception):
    """There is no such cluster, it is not described in full, or it cannot do what a test asks of it."""


class Provider(Protocol):
    """A cluster for the tests.

    Attributes:
        image: of Dask's pods.
        pull_policy: of all pods that the tests make.
        kubectl: as its administrator.
        helm: the program.
        cluster: the local cluster, for tests with the mark; elsewhere it raises ProviderError.
    """

    image: str
    pull_policy: str

    @property
    def kubectl(self) -> Kubectl: ...
    @property
    def helm(self) -> Path: ...
    @property
    def cluster(self) -> Cluster: ...

    def start(self) -> str:
        """Have the cluster up and the operator installed; the operator's image."""

    def install(self, image: str, *settings: str) -> None:
        """`helm upgrade --install` of the operator; `settings` are more values."""

    def get(self, path: str) -> Json | None:
        """What the API server has at `path`; None where there is nothing.

        Raises:
            LocalClusterError: it does not answer, or refuses.
        """

    def scheduler_address(self, kubectl: Kubectl, cluster: str) -> AbstractContextManager[str]:
        """The address at which this machine reaches a cluster's scheduler, in the namespace of `kubectl`."""

    def lacks_gpus(self) -> str:
        """Why GPU pods cannot run; empty where they can."""


class LocalProvider:
    """The local cluster: brought up where it is not, with images of this checkout."""

    image, pull_policy = IMAGE, "Never"

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster.find()
        return self._cluster

    @property
    def kubectl(self) -> Kubectl:
        return Kubectl(str(self.cluster.kubectl), self.cluster.kubeconfig)

    @property
    def helm(self) -> Path:
        return self.cluster.layout.commands / "helm"

    def start(self) -> str:
        self._cluster = Cluster.up("default", steps=Steps())
        with _one_at_a_time():
            build_images(["dask-cpu"], self._cluster.images, Steps())  # a rollout's other image
            return install_checkout(self._cluster, Steps())

    def install(self, image: str, *settings: str) -> None:
        default = f"defaults.image={self.image}"
        install_operator(self.cluster.layout.commands, self.cluster.kubeconfig, image, default, *settings)

    def get(self, path: str) -> Json | None:
        return self.cluster.api.get(path)

    @contextmanager
    def scheduler_address(self, kubectl: Kubectl, cluster: str) -> Iterator[str]:
        """The Service's: this machine is on the cluster's network."""
        service = json.loads(kubectl("get", "service", f"{cluster}-scheduler", "-o", "json").stdout)
        yield f"tcp://{service['spec']['clusterIP']}:{_SCHEDULER_PORT}"

    def lacks_gpus(self) -> str:
        return ""  # it pretends as many as are wanted


class GivenProvider:
    """Somebody's cluster, such as kind's, with images that it can pull or has."""

    pull_policy = "IfNotPresent"

    def __init__(self, kubeconfig: Path, image: str, operator_image: str) -> None:
        self.image = image
        self._given = kubeconfig
        self._operator_image = operator_image
        self._scratch = tempfile.TemporaryDirectory(prefix="gpudask-e2e-")

    @property
    def cluster(self) -> Cluster:
        raise ProviderError(f"{self._given} is not the local cluster's: the test lacks the mark local_cluster")

    @cached_property
    def kubectl(self) -> Kubectl:
        """By a kubeconfig with the current context alone, and all of it in one file: tests make others from it."""
        program = str(find_commands(QUIET)[0])
        alone = Kubectl(program, self._given)("config", "view", "--minify", "--flatten", "--raw").stdout
        path = Path(self._scratch.name) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(alone)
        return Kubectl(program, path)

    @property
    def helm(self) -> Path:
        return find_commands(QUIET)[1]

    def start(self) -> str:
        nodes = self._nodes()
        if len(nodes) < _NODES:
            raise ProviderError(f"the cluster of {self._given} has {len(nodes)} nodes: the tests take {_NODES}")
        with _one_at_a_time():
            self.install(self._operator_image)
        return self._operator_image

    def install(self, image: str, *settings: str) -> None:
        tools = Tools(Path(self.kubectl.path), self.helm, str(self.kubectl.kubeconfig))
        default = f"defaults.image={self.image}"
        tools.install(image, *EVERYTHING, default, *settings, patience_seconds=_PULL_SECONDS)

    def get(self, path: str) -> Json | None:
        done = self.kubectl.attempt("get", "--raw", path)
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
        if "(NotFound)" in done.stderr:
            return None
        raise LocalClusterError(f"GET {path}: {done.stderr.strip()}")

    @contextmanager
    def scheduler_address(self, kubectl: Kubectl, cluster: str) -> Iterator[str]:
        """A forwarded port's."""
        forward = kubectl.start("port-forward", f"service/{cluster}-scheduler", f":{_SCHEDULER_PORT}")
        try:
            assert forward.stdout is not None, "it is a pipe"
            line = forward.stdout.readline()  # Forwarding from 127.0.0.1:41234 -> 8786
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert found, f"kubectl port-forward said {line!r}"
            yield f"tcp://127.0.0.1:{found[1]}"
        finally:
            forward.terminate()
            forward.wait()

    def lacks_gpus(self) -> str:
        return self._lacks_gpus

    @cached_property
    def _lacks_gpus(self) -> str:
        gpus = sum(int(node["status"]["allocatable"].get(_GPU, "0")) for node in self._nodes())
        return "" if gpus >= _GPUS else f"the nodes offer {gpus} {_GPU}, and the tests take {_GPUS}"

    def _nodes(self) -> list[Json]:
        return list(json.loads(self.kubectl("get", "nodes", "-o", "json").stdout)["items"])


def provider_of(environment: Mapping[str, str]) -> Provider:
    """The given cluster where the environment names one, else the local one.

    Raises:
        ProviderError: only a part of what a given cluster takes is there.
    """
    kubeconfig, image, operator_image = (environment.get(name, "") for name in _VARIABLES)
    if not (kubeconfig or image or operator_image):
        return LocalProvider()
    if not (kubeconfig and image and operator_image):
        lacking = ", ".join(name for name in _VARIABLES if not environment.get(name))
        raise ProviderError(
            f"a cluster of your own takes all of {', '.join(_VARIABLES)}, and {lacking} is missing: "
            "make test-e2e KUBECONFIG=... IMAGE=... OPERATOR_IMAGE=..."
        )
    if not Path(kubeconfig).is_file():
        raise ProviderError(f"{E2E_KUBECONFIG} is {kubeconfig}: there is no such file")
    return GivenProvider(Path(kubeconfig), image, operator_image)


@cache
def chosen() -> Provider:
    """The provider of this process."""
    return provider_of(os.environ)


def why_not(reason: str, provider: Provider) -> str:
    """Why a test with the mark `local_cluster`, which has this reason, cannot run; empty where it can."""
    return "" if isinstance(provider, LocalProvider) else f"only on the local cluster: {reason}"


def _one_at_a_time() -> AbstractContextManager[None]:
    """Tests run side by side in several processes."""
    return exclusive(Layout.of("default").root.with_name("platform"))
