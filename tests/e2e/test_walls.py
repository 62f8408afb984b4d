"""Who gets to the pods of a Dask cluster, as the local cluster's firewall enforces the operator's NetworkPolicies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from distributed import Client, wait

from gpudask import KubeCluster
from tests.e2e.manifests import RESTRICTED_CONTAINER, RESTRICTED_POD, cluster, cpu, gpu
from tests.e2e.programs import IMAGE
from tests.e2e.provider import chosen
from tests.e2e.space import Space
from tests.eventually import eventually
from tests.kubectl import Kubectl

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.local_cluster("it needs a firewall that enforces NetworkPolicies, and the pods' network"),
]

_KNOCK = """
import json, socket, sys

def knock(host, port):
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError as error:
        return type(error).__name__
    return "in"

print(json.dumps({name: knock(*door) for name, door in json.loads(sys.argv[1]).items()}))
"""
Doors = dict[str, tuple[str, int]]


@dataclass(frozen=True)
class Visitor:
    """A pod that belongs to no Dask cluster, on the node without GPUs."""

    kubectl: Kubectl
    name: str = "visitor"

    @classmethod
    @contextmanager
    def arrives(cls, kubectl: Kubectl) -> Iterator[Visitor]:
        """Run it in the namespace of `kubectl`, until the end of the block."""
        container = {
            "name": "visitor",
            "image": IMAGE,
            "imagePullPolicy": chosen().pull_policy,
            "command": ["python", "-c", "import signal; signal.pause()"],
            **RESTRICTED_CONTAINER,
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **RESTRICTED_POD}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": cls.name}, "spec": spec}
        kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        try:
            kubectl("wait", "--for=condition=Ready", f"pod/{cls.name}", "--timeout=60s")
            yield cls(kubectl)
        finally:
            kubectl("delete", "pod", cls.name, "--wait=false")

    def knocks(self, doors: Doors) -> dict[str, str]:
        """Each door's name -> `in`, or the error that ended the attempt."""
        done = self.kubectl("exec", self.name, "--", "python", "-c", _KNOCK, json.dumps(doors))
        return dict(json.loads(done.stdout))

    def gets_in(self, doors: Doors) -> None:
        """Wait until all doors are open to it: a firewall follows policies a moment later."""
        self._waits(doors, open_doors=set(doors), what="every door is open")

    def is_kept_out(self, doors: Doors) -> None:
        """Wait until none is."""
        self._waits(doors, open_doors=set(), what="every door is closed")

    def _waits(self, doors: Doors, *, open_doors: set[str], what: str) -> None:
        def seen() -> bool:
            return {name for name, outcome in self.knocks(doors).items() if outcome == "in"} == open_doors

        eventually(seen, f"{what} to {self.kubectl.namespace}", show=lambda: str(self.knocks(doors)))


@pytest.fixture
def stranger(space: Space) -> Iterator[Visitor]:
    """A pod of another namespace."""
    namespace = f"{space.kubectl.namespace}-strangers"
    space.platform.create_namespace(namespace)
    try:
        with Visitor.arrives(space.platform.kubectl.inside(namespace)) as visitor:
            yield visitor
    finally:
        space.platform.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def doors(space: Space) -> Doors:
    """Where a running Dask cluster `walled` listens: on the visitor's node, on the other, and behind its Service."""
    space.apply(cluster("walled", cpu(), gpu(replicas=1)))
    space.wait_ready("walled")
    space.wait_workers("walled", "gpu", 1)
    service = space.find("services", "walled-scheduler")
    (scheduler,) = (pod["status"]["podIP"] for pod in space.pods("walled"))
    found = {
        "the Service": (service["spec"]["clusterIP"], 8786),
        "the scheduler": (scheduler, 8786),
        "the dashboard and the preload": (scheduler, 8787),
    }
    with space.client("walled") as client:
        for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
            place = urlsplit(address)
            assert place.hostname
            assert place.port
            found[f"the worker {worker['name']}"] = (place.hostname, place.port)
    assert len(found) == 5, found
    return found


def test_a_pod_of_another_namespace_gets_in_only_where_no_policies_are_made(
    space: Space, stranger: Visitor, doors: Doors
) -> None:
    before = space.containers()
    stranger.is_kept_out(doors)
    try:
        space.platform.install("networkPolicies=false")
        stranger.gets_in(doors)
    finally:
        space.platform.install()
    stranger.is_kept_out(doors)
    assert space.containers() == before, "walls come and go without a restart"


def test_whom_allow_from_names_gets_in_and_nobody_else(space: Space, stranger: Visitor, doors: Doors) -> None:
    own_namespace: dict[str, object] = {"podSelector": {}}
    theirs = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stranger.kubectl.namespace}}}
    with Visitor.arrives(space.kubectl) as neighbour:
        neighbour.is_kept_out(doors)
        space.edit("walled", {"op": "add", "path": "/spec/network", "value": {"allowFrom": [own_namespace]}})
        neighbour.gets_in(doors)
        stranger.is_kept_out(doors)
        space.edit("walled", {"op": "replace", "path": "/spec/network/allowFrom", "value": [theirs]})
        stranger.gets_in(doors)
        neighbour.is_kept_out(doors)


def test_behind_the_walls_all_goes_on(
    space: Space, stranger: Visitor, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.is_kept_out(doors)
    space.edit(
        "walled",
        {"op": "remove", "path": "/spec/pools/1/replicas"},
        {"op": "add", "path": "/spec/pools/1/autoscale", "value": {"min": 0, "max": 2, "idleTimeout": "2s"}},
    )
    space.wait_pods("walled", "gpu", 0)
    monkeypatch.setenv("KUBECONFIG", str(space.kubectl.kubeconfig))
    with KubeCluster.from_name("walled", namespace=space.kubectl.namespace) as found, Client(found) as client:
        assert found._connection.forwards, "through a forwarded port"
        # The operator hears of the demand, a pod on the other node joins, and two workers exchange a result.
        made = client.submit(bytes, 1 << 20, pure=False)
        wait(made, timeout=60)
        assert client.submit(len, made, resources={"GPU": 1}).result(timeout=90) == 1 << 20
    space.wait_pods("walled", "gpu", 0)
    stranger.is_kept_out({name: door for name, door in doors.items() if "gpu" not in name})
