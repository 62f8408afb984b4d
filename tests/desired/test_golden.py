"""The rendered objects of the examples, word for word: `pytest --update-golden`, then read the diff."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api.resource import Cluster, parse
from gpudask.desired import network, preload, scheduler
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from gpudask.launcher.script import one_process
from gpudask.planning.scheduler import with_default_image
from tests.builders import a_cluster, a_pool

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
UID = "11111111-1111-1111-1111-111111111111"


class Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is the library's
        return True


def of_text(dumper: Plain, text: str) -> yaml.Node:
    """A string, but for the launcher's text, which is its module's."""
    return dumper.represent_str("(operator/gpudask/launcher/one_process.py)" if text == one_process() else text)


Plain.add_representer(str, of_text)


def example(name: str) -> Cluster:
    body = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
    body["metadata"] |= {"namespace": "default", "uid": UID, "generation": 1}
    return with_default_image(parse(body), None, "registry.example/gpudask/dask:1")


def rendered(cluster: Cluster) -> str:
    name, files = f"{cluster.name}-scheduler-abcde", {"entry.py": b"# the preload\n", "parts.zip": b"parts of it"}
    objects = [
        *scheduler.services(cluster),
        preload.preload(cluster.namespace, files, [cluster.shared_reference]),
        scheduler.preload_settings(cluster, "token"),
        network.policy(cluster, "gpudask-system"),
        scheduler_pod(cluster, name, preload.name(files)),
        *(worker_pod(cluster, pool, 0, "abcde") for pool in cluster.spec.pools),
    ]
    return yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=110)


def compare(name: str, cluster: Cluster, *, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = rendered(cluster)
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs: run pytest tests/desired --update-golden and read the diff"


@pytest.mark.parametrize("name", ["minimal", "mixed", "multi-gpu"])
def test_the_objects_of_an_example(name: str, update_golden: bool):
    compare(name, example(name), update_golden=update_golden)


def test_the_objects_of_a_cluster_of_tcp_with_a_pool_of_ucxx(update_golden: bool):
    gpu = a_pool("gpu", gpu={"count": 4}, replicas=1, protocol="ucxx")
    compare("pool-protocol", a_cluster(a_pool("cpu"), gpu), update_golden=update_golden)
