"""The ten tasks of docs/tasks.md, from the page itself: its files, commands and programs, and what it says they print.

Images and the namespace are replaced, nothing else. One cluster serves all tasks; the last one deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.recipes import tasks
from tests.e2e.newcomer import Newcomer
from tests.e2e.platform import Platform
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.e2e.stand_in_gpus import stand_in_gpus
from tests.eventually import eventually

pytestmark = [
    pytest.mark.alone,  # it installs the operator with other values
    pytest.mark.local_cluster("it puts images on the nodes, and pods mount this machine's directories"),
]

TASKS = tasks()
# Not CuPy: its words for the calls that the page makes, which are NumPy's.
_CUPY = "from numpy import *\nfrom numpy import random\n"


@dataclass(frozen=True)
class Demo:
    """The cluster of task 2, and what its program printed."""

    newcomer: Newcomer
    printed: str

    @property
    def space(self) -> Space:
        return self.newcomer.space


@pytest.fixture(scope="module")
def newcomer(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    operator, _, tag = platform.operator_image.rpartition(":")
    (other,) = [name for name in images_of(platform) if name != IMAGE][:1]
    with Space.opened(platform) as space, stand_in_gpus(platform, space):
        words = {
            "me/dask:0.1.0": IMAGE,
            "me/dask:0.2.0": other,
            "image.repository=me/operator": f"image.repository={operator}",
            "image.tag=0.1.0": f"image.tag={tag}",
            "team-a": space.kubectl.namespace,
        }
        yield Newcomer.arrive(space, tmp_path_factory.mktemp("newcomer"), words)
    platform.install()  # again with the values of the other tests: the page's are the chart's own


@pytest.fixture(scope="module")
def demo(newcomer: Newcomer) -> Demo:
    return Demo(newcomer, newcomer.follow(TASKS[2]))


def images_of(platform: Platform) -> list[str]:
    """The names of this checkout's Dask image on the nodes: `dev`, and its hash."""
    store = platform.cluster.images.of(next(iter(platform.cluster.images.sockets)))
    known = store.images()
    return [name for name, identity in known.items() if identity == known[IMAGE] and "@" not in name and ":" in name]


@contextmanager
def volume(space: Space, path: Path) -> Iterator[None]:
    """A volume for the page's claim: a directory of this machine, which is every node."""
    path.chmod(0o777)
    name = f"{space.kubectl.namespace}-data"
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "claimRef": {"namespace": space.kubectl.namespace, "name": "data"},
        "hostPath": {"path": str(path), "type": "Directory"},
    }
    made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    space.platform.kubectl("create", "-f", "-", stdin=json.dumps(made))
    try:
        yield
    finally:
        space.kubectl("delete", "pvc", "data", "--ignore-not-found", "--wait=false")
        space.platform.kubectl("delete", "pv", name, "--wait=false")


def test_1_install(newcomer: Newcomer) -> None:
    printed = newcomer.follow(TASKS[1])
    assert "STATUS: deployed" in printed
    platform = newcomer.space.platform

    def images() -> list[str]:
        return [pod["spec"]["containers"][0]["image"] for pod in platform.operator_pods()]

    # Pods that were there before end meanwhile.
    wanted = [platform.operator_image] * 2
    eventually(lambda: images() == wanted, "one leads, the other stands by", show=images)


def test_2_the_first_cluster(demo: Demo) -> None:
    assert "the sum is 6997000" in demo.printed
    # The program may end before the next count.
    demo.space.wait(lambda: demo.space.pool("demo", "gpu")["gpuSecondsHeld"] > 0, "a GPU pod came and was counted")


def test_3_a_cupy_array_from_a_notebook_without_a_gpu(demo: Demo, tmp_path: Path) -> None:
    module = tmp_path / "cupy.py"  # not in the newcomer's directory: whoever writes the program has no CuPy
    module.write_text(_CUPY)
    with demo.space.client("demo") as client:
        client.upload_file(str(module))
        demo.newcomer.follow(TASKS[3])


def test_4_extra_packages(demo: Demo) -> None:
    demo.newcomer.follow(TASKS[4])
    assert (demo.newcomer.directory / "Dockerfile").read_text().startswith("# Dockerfile\nFROM ")


def test_5_a_volume_for_data(newcomer: Newcomer, tmp_path: Path) -> None:
    with volume(newcomer.space, tmp_path):
        newcomer.follow(TASKS[5])
        newcomer.space.wait(lambda: not newcomer.space.pods("withdata", "cpu"), "its pods are gone")
        assert (tmp_path / "result.txt").read_text() == "kept", "the data did not outlive the cluster"


def test_6_why_is_it_waiting(newcomer: Newcomer) -> None:
    newcomer.follow(TASKS[6])


def test_7_scale(demo: Demo) -> None:
    demo.newcomer.follow(TASKS[7])
    (body,) = [body for body in demo.space.get("gdc") if body["metadata"]["name"] == "demo"]
    assert body["spec"].get("overrides", []) == [], "a size was not given back"


def test_8_share_with_a_colleague(demo: Demo, tmp_path: Path) -> None:
    manifests, commands, theirs = TASKS[8].steps
    for step in (manifests, commands):
        demo.newcomer.do(step)
    kubectl = demo.space.kubectl
    kubectl("create", "serviceaccount", "kim")
    kubectl("create", "rolebinding", "kim", "--role=dask-colleague", f"--serviceaccount={kubectl.namespace}:kim")
    own = tmp_path / "kubeconfig"
    demo.newcomer.write_kubeconfig(own, token=kubectl("create", "token", "kim").stdout.strip())
    demo.newcomer.do(theirs, kubeconfig=own)
    stranger = kubectl.attempt("auth", "can-i", "get", "secrets", "--as", "kim@example.org")
    assert stranger.stdout.strip() == "no"


def test_9_upgrade_the_image(demo: Demo) -> None:
    change, look = TASKS[9].steps
    demo.newcomer.do(change)
    old, new = demo.newcomer.here("me/dask:0.1.0"), demo.newcomer.here("me/dask:0.2.0")

    def is_through() -> bool:
        printed = demo.newcomer.do(look)
        return old not in printed and "demo-scheduler-" in printed and printed.count(new) >= 2

    demo.space.wait(is_through, "every pod runs the new image", seconds=90)


def test_10_clean_up(demo: Demo) -> None:
    demo.newcomer.follow(TASKS[10])
    (removal,) = [step for step in TASKS[10].steps if step.instead]
    helm, kubectl = removal.text.splitlines()
    demo.newcomer.run([*helm.split(), "--dry-run"])
    demo.newcomer.run([*kubectl.split(), "--dry-run=server"])
