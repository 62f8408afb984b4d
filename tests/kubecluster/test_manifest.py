"""The words of `KubeCluster(...)` as a manifest, and the words that refuse them."""

import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from gpudask import KubeClusterError
from gpudask.api.pool import Pool
from gpudask.api.spec import Spec
from gpudask.kubecluster.manifest import Arguments, summary, manifest
from gpudask.kubecluster.manifest import read_manifest
from gpudask.kubecluster.manifest import cluster_name, user

CPU = {"name": "cpu", "replicas": 2}
ROOT = Path(__file__).parents[2]

POOLS: dict[str, tuple[Arguments, list[dict[str, Any]]]] = {
    "nothing said": (Arguments(), [{"name": "cpu", "autoscale": {"min": 1, "max": 4}}]),
    "a number of workers is fixed": (Arguments(n_workers=2), [CPU]),
    "two numbers follow demand": (Arguments(n_workers=(0, 10)), [{"name": "cpu", "autoscale": {"min": 0, "max": 10}}]),
    "a number of GPUs is the most": (
        Arguments(gpus=8),
        [{"name": "gpu", "gpu": {"count": 1}, "autoscale": {"min": 0, "max": 8}}],
    ),
    "both make two pools": (
        Arguments(n_workers=2, gpus=(1, 8)),
        [CPU, {"name": "gpu", "gpu": {"count": 1}, "autoscale": {"min": 1, "max": 8}}],
    ),
    "no GPUs make no pool": (Arguments(n_workers=2, gpus=0), [CPU]),
    "resources by name": (Arguments(n_workers=2, resources={"cpu": 4}), [CPU | {"resources": {"cpu": 4}}]),
    "resources as a container has them": (
        Arguments(n_workers=2, resources={"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi", "cpu": "2"}}),
        [CPU | {"resources": {"memory": "4Gi", "cpu": "2"}}],
    ),
    "the stock worker command": (Arguments(n_workers=2, worker_command="dask-worker"), [CPU]),
    "arguments to the worker": (
        Arguments(n_workers=2, worker_command=["dask", "worker", "--lifetime", "1h"]),
        [CPU | {"extraArgs": ["--lifetime", "1h"]}],
    ),
    "pools in full": (Arguments(pools=[CPU | {"accepts": "any"}]), [CPU | {"accepts": "any"}]),
    "pools as models": (
        Arguments(pools=[Pool(name="cpu", replicas=2, drain_timeout="5m")]),
        [CPU | {"drainTimeout": "5m"}],
    ),
}


@pytest.mark.parametrize(("words", "expected"), POOLS.values(), ids=POOLS)
def test_pools(words: Arguments, expected: list[dict[str, Any]]):
    assert manifest("demo", words)["spec"]["pools"] == expected


def test_the_rest_of_the_words_have_their_places():
    words = Arguments(
        image="me/dask:1", env={"LEVEL": 3}, scheduler_service_type="NodePort", protocol="tls", n_workers=2
    )
    assert manifest("demo", words) == {
        "apiVersion": "gpudask.dev/v1alpha1",
        "kind": "GpuDaskCluster",
        "metadata": {"name": "demo"},
        "spec": {
            "image": "me/dask:1",
            "env": [{"name": "LEVEL", "value": "3"}],
            "scheduler": {"service": {"type": "NodePort"}},
            "protocol": "tls",
            "pools": [CPU],
        },
    }


WHOLE = {
    "apiVersion": "gpudask.dev/v1alpha1",
    "kind": "GpuDaskCluster",
    "metadata": {"name": "other", "labels": {"team": "a"}},
    "spec": {"image": "i", "pools": [CPU]},
}


@pytest.mark.parametrize(
    "custom", [WHOLE, WHOLE["spec"], Spec.model_validate(WHOLE["spec"])], ids=["manifest", "spec", "model"]
)
def test_a_custom_spec_is_taken_as_it_is(custom: Any):
    body = manifest("demo", Arguments(custom_cluster_spec=custom))

    assert body["spec"] == WHOLE["spec"]
    assert body["metadata"]["name"] == "demo"


def test_a_custom_spec_may_be_a_file():
    body = manifest("demo", Arguments(custom_cluster_spec=read_manifest(ROOT / "examples" / "mixed.yaml")))

    assert [pool["name"] for pool in body["spec"]["pools"]] == ["cpu", "gpu"]


REFUSED: dict[str, tuple[Arguments, str]] = {
    "a size that is none": (
        Arguments(n_workers=-1),
        r"n_workers=-1 is no size: .* Write n_workers=2, or n_workers=\(0, 8",
    ),
    "limits the wrong way round": (Arguments(gpus=(8, 0)), r"gpus=\(8, 0\) is no range"),
    "no worker at all": (Arguments(n_workers=0), r"without any worker.*Write n_workers=\(0, 4\) or gpus=8"),
    "a whole manifest and words": (
        Arguments(custom_cluster_spec=WHOLE, image="i", gpus=2),
        "custom_cluster_spec beside image, gpus: .*Put them into the manifest",
    ),
    "pools and sizes": (Arguments(pools=[CPU], n_workers=3), "pools beside n_workers: .*Write size, gpu"),
    "an idle time that is none": (Arguments(idle_timeout="soon"), r"idle_timeout='soon' is no length of time: .*=3600"),
    "an idle time below zero": (Arguments(idle_timeout=-1), "idle_timeout=-1 is no length of time"),
    "an idle time too short to work in": (Arguments(idle_timeout=1), r"spec.idle.deleteAfter: .*write at least 10s"),
    "a GPU among the resources": (
        Arguments(n_workers=2, resources={"limits": {"nvidia.com/gpu": 1}}),
        "resources with nvidia.com/gpu: .*Write gpus=8",
    ),
    "a limit above the request": (
        Arguments(n_workers=2, resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}),
        "another limit than request of memory: .*Write resources={'memory': '2Gi'}",
    ),
    "a GPU worker's command": (Arguments(worker_command="dask cuda worker"), "starts that by itself. Write gpus=8"),
    "another command": (Arguments(worker_command="python main.py"), "is no `dask worker`: .*a pool's template"),
    "an argument that the operator sets": (
        Arguments(n_workers=2, worker_command="dask worker --nthreads 4"),
        r"spec.pools\[0\].extraArgs: extraArgs may not set --name, .*nthreads",
    ),
    "a field that a rule refuses": (
        Arguments(pools=[{"name": "gpu-2"}]),
        r"spec.pools\[0\].name: a pool's name is .* write gpu2, not gpu-2",
    ),
    "a manifest of the stock operator": (
        Arguments(custom_cluster_spec={"kind": "DaskCluster", "spec": {}}),
        "kind DaskCluster: .*gpudask convert",
    ),
    "a number for a manifest": (Arguments(custom_cluster_spec=3), "of type int"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_said_is_refused_with_what_to_write(words: Arguments, said: str):
    with pytest.raises(KubeClusterError, match="(?s)" + said):
        manifest("demo", words)


def test_a_name_that_cannot_be_one_is_refused():
    with pytest.raises(KubeClusterError, match=r"metadata.name: .*lower-case letters"):
        manifest("My_Cluster", Arguments())


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(KubeClusterError, match=r"cannot read custom_cluster_spec '/no/such.yaml'"):
        read_manifest("/no/such.yaml")


def test_what_was_chosen_is_one_line():
    body = manifest("demo", Arguments(image="i", n_workers=2, gpus=8))

    assert summary(body) == "image i, pools cpu (2 pods), gpu (0 to 8 pods of 1 GPU)"


def test_without_an_image_the_operator_has_one():
    body = manifest("demo", Arguments(n_workers=2))
    assert "image" not in body["spec"]
    assert summary(body) == "image of the operator, pools cpu (2 pods)"


@pytest.mark.parametrize(
    ("wanted", "user", "expected"),
    [
        ("demo", "alice", "demo"),
        (None, "alice", "alice-0a1b2"),
        (None, "Alice.Smith@example", "alice-smith-example-0a1b2"),
        (None, "42", "dask-42-0a1b2"),
        (None, "uid 1000", "uid-1000-0a1b2"),
        ("train-{user}", "alice", "train-alice"),
        ("{uuid}-{user}", "x" * 60, "0a1b2-" + "x" * 29),
        (None, "x" * 60, "x" * 29 + "-0a1b2"),
    ],
)
def test_names(wanted: str | None, user: str, expected: str):
    assert cluster_name(wanted, user=user, nonce="0a1b2c") == expected
    assert len(expected) <= 35


@pytest.mark.parametrize(
    ("idle_timeout", "written"),
    [(3600, "3600s"), (90.5, "90.5s"), ("1h30m", "1h30m"), (0, None)],
)
def test_an_idle_time_is_the_operators_to_watch(idle_timeout: float | str, written: str | None):
    idle = manifest("demo", Arguments(idle_timeout=idle_timeout))["spec"].get("idle")

    assert idle == (written and {"deleteAfter": written})


@pytest.mark.parametrize("missing", [KeyError, OSError, ImportError])
def test_whoever_has_no_name_here_has_one_all_the_same(missing: type[Exception], monkeypatch: pytest.MonkeyPatch):
    """In a container whose user id is nobody's; and under Windows, which has neither `pwd` nor user ids."""

    def unknown() -> str:
        raise missing

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert user() == f"uid {os.getuid()}"
    monkeypatch.delattr(os, "getuid")
    assert user() == "unknown"
