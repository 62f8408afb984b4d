"""The words of `KubeCluster(...)` as a manifest, and the words that refuse them."""

import getpass
import inspect
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from dask_kubernetes import operator as stock

import gpudask
from gpudask import KubeClusterError, make_cluster_spec, make_worker_spec
from gpudask.api.pool import Pool
from gpudask.api.spec import Spec
from gpudask.kubecluster.manifest import Arguments, summary, manifest
from gpudask.kubecluster.manifest import read_manifest
from gpudask.kubecluster.manifest import cluster_name, user

CPU = {"name": "cpu", "replicas": 2}
GPU = {"name": "gpu", "gpu": {"count": 1}}
ROOT = Path(__file__).parents[2]


def a_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "dask", **fields}]}}


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
        [
            CPU
            | {
                "resources": {"memory": "4Gi", "cpu": "2"},
                "template": a_container(resources={"limits": {"cpu": "2"}}),
            }
        ],
    ),
    "a limit above the request": (
        Arguments(n_workers=2, resources={"requests": {"memory": "1Gi", "cpu": 1}, "limits": {"memory": "2Gi"}}),
        [
            CPU
            | {
                "resources": {"cpu": 1, "memory": "2Gi"},
                "template": a_container(resources={"requests": {"memory": "1Gi"}}),
            }
        ],
    ),
    "no worker yet": (Arguments(n_workers=0), [{"name": "cpu", "replicas": 0}]),
    "no GPU, and nothing else said": (Arguments(gpus=0), [{"name": "cpu", "autoscale": {"min": 1, "max": 4}}]),
    "no CPU worker beside GPUs": (Arguments(n_workers=0, gpus=(2, 2)), [GPU | {"autoscale": {"min": 2, "max": 2}}]),
    "GPUs among the resources": (
        Arguments(n_workers=2, resources={"limits": {"nvidia.com/gpu": "2", "memory": "8Gi"}}),
        [
            {
                "name": "gpu",
                "gpu": {"count": 2, "launcher": "dask", "nodeSelector": {}},
                "replicas": 2,
                "accepts": "any",
                "resources": {"memory": "8Gi"},
            }
        ],
    ),
    "RAPIDS' own example for the stock client": (
        Arguments(n_workers=3, worker_command="dask-cuda-worker", resources={"limits": {"nvidia.com/gpu": "1"}}),
        [{"name": "gpu", "gpu": {"count": 1, "nodeSelector": {}}, "replicas": 3, "accepts": "any"}],
    ),
    "a command that needs a GPU": (
        Arguments(worker_command="/opt/conda/bin/dask-cuda-worker --rmm-pool-size 20GB"),
        [GPU | {"autoscale": {"min": 0, "max": 4}, "accepts": "any", "extraArgs": ["--rmm-pool-size", "20GB"]}],
    ),
    "a command that needs a GPU, beside a CPU pool": (
        Arguments(n_workers=2, gpus=(1, 1), worker_command="dask cuda worker --pid-file x"),
        [CPU, GPU | {"autoscale": {"min": 1, "max": 1}, "extraArgs": ["--pid-file", "x"]}],
    ),
    "workers that offer something": (
        Arguments(n_workers=1, worker_command=["dask", "worker", "--resources", "GPU=1"], resources={"a/gpu": 1}),
        [
            {
                "name": "gpu",
                "gpu": {"count": 1, "resourceName": "a/gpu", "launcher": "dask", "nodeSelector": {}},
                "replicas": 1,
                "offers": {"GPU": "1"},
            }
        ],
    ),
    "flags that are fields here": (
        Arguments(
            n_workers=2, worker_command="/opt/conda/bin/dask-worker --nthreads 4 --memory-limit 4GiB --preload a.py"
        ),
        [
            CPU
            | {
                "nthreads": 4,
                "resources": {"memory": "4Gi"},
                "env": [{"name": "DASK_DISTRIBUTED__WORKER__PRELOAD", "value": '["a.py"]'}],
            }
        ],
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
    "a pool with a protocol of its own": (
        Arguments(pools=[{"name": "cpu"}, Pool(name="gpu", gpu={"count": 2}, protocol="ucxx")]),
        [{"name": "cpu"}, {"name": "gpu", "gpu": {"count": 2}, "protocol": "ucxx"}],
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
    "a whole manifest and words": (
        Arguments(custom_cluster_spec=WHOLE, image="i", gpus=2),
        "custom_cluster_spec beside image, gpus: .*Put them into the manifest",
    ),
    "pools and sizes": (Arguments(pools=[CPU], n_workers=3), "pools beside n_workers: .*Write size, gpu"),
    "an idle time that is none": (Arguments(idle_timeout="soon"), r"idle_timeout='soon' is no length of time: .*=3600"),
    "an idle time below zero": (Arguments(idle_timeout=-1), "idle_timeout=-1 is no length of time"),
    "an idle time too short to work in": (Arguments(idle_timeout=1), r"spec.idle.deleteAfter: .*write at least 10s"),
    "GPUs in two ways": (
        Arguments(gpus=2, resources={"limits": {"nvidia.com/gpu": 1}}),
        "gpus=2 beside resources with GPUs: both say how many. Write gpus= alone",
    ),
    "half a GPU": (Arguments(resources={"nvidia.com/gpu": 0.5}), "a whole number of GPUs. Write 'nvidia.com/gpu': 1"),
    "two kinds of GPU": (Arguments(resources={"a/gpu": 1, "b/gpu": 1}), "one kind of GPU a pool: b/gpu left out"),
    "resources that are none": (Arguments(resources={"limits": 3}), r"a container's requests and limits. Write {'cpu'"),
    "a list for resources": (Arguments(resources=["cpu"]), "it is an amount by name"),
    "an env that is none": (Arguments(env=["LEVEL=3"]), "env with 'LEVEL=3': .*Write env={'LEVEL': '3'}, or"),
    "several processes in a pod": (
        Arguments(worker_command="dask worker --nworkers 2"),
        "worker_command='dask worker --nworkers 2': .*raise replicas instead. Leave it out",
    ),
    "a wrapper before the command": (Arguments(worker_command="tini -- dask-worker"), "make it the image's entrypoint"),
    "another command": (Arguments(worker_command="python main.py"), "is no `dask worker`: .*a pool's template"),
    "a field that a rule refuses": (
        Arguments(pools=[{"name": "gpu-2"}]),
        r"spec.pools\[0\].name: a pool's name is .* write gpu2, not gpu-2",
    ),
    "a manifest of another kind": (
        Arguments(custom_cluster_spec={"kind": "Pod", "spec": {}}),
        "kind Pod: .*Write its kind",
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


def test_a_manifest_of_the_stock_operator_is_converted():
    custom = make_cluster_spec(
        "lab", n_workers=3, resources={"limits": {"memory": "4Gi"}}, env={"A": "1"}, jupyter=True
    )
    custom["spec"]["worker"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    body = manifest("lab", Arguments(custom_cluster_spec=read_manifest(custom)))

    assert body["spec"]["image"] == "ghcr.io/dask/dask:latest"
    assert body["spec"]["env"] == [{"name": "A", "value": "1"}]
    assert body["spec"]["scheduler"]["extraArgs"] == ["--jupyter"]
    (pool,) = body["spec"]["pools"]
    assert (pool["name"], pool["replicas"], pool["resources"]) == ("default", 3, {"memory": "4Gi"})
    assert pool["template"]["spec"]["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_files_of_the_stock_operator_are_converted_as_a_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    group = {"cluster": "lab", "worker": make_worker_spec(n_workers=1, worker_command="dask worker --nworkers 2")}
    metadata = {"name": "lab-high-mem"}
    kind = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskWorkerGroup"}
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump_all([make_cluster_spec("lab"), {**kind, "metadata": metadata, "spec": group}]))

    assert [pool["name"] for pool in read_manifest(str(path))["spec"]["pools"]] == ["default", "highmem"]
    assert "not carried over: DaskWorkerGroup lab-high-mem" in caplog.text


def test_a_manifest_that_cannot_be_converted_says_which_field():
    custom = make_cluster_spec("lab")
    del custom["spec"]["worker"]["spec"]["containers"][0]["image"]
    with pytest.raises(ValueError, match=r"DaskCluster lab: spec.worker.spec.containers: a container with an image"):
        read_manifest(custom)


def test_what_make_cluster_spec_takes_is_what_the_stock_function_takes():
    for name in ("make_cluster_spec", "make_worker_spec", "make_scheduler_spec"):
        theirs, ours = getattr(stock, name), getattr(gpudask, name)
        named = [{word: each.default for word, each in inspect.signature(f).parameters.items()} for f in (theirs, ours)]
        assert named[0] == named[1]
        assert list(named[0]) == list(named[1]), "by position, too"


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
        ("dask-{JUPYTERHUB_USER}", "x", "dask-ada-lovelace"),
        ("{JUPYTERHUB_USER}-{user}-{uuid}", "b" * 60, "ada-lovelace-" + "b" * 14 + "-0a1b2"),
        ("a{EMPTY}b", "x", "ab"),
    ],
)
def test_names(wanted: str | None, user: str, expected: str):
    environment = {"JUPYTERHUB_USER": "Ada.Lovelace", "EMPTY": "", "user": "nobody"}

    assert cluster_name(wanted, user=user, nonce="0a1b2c", environment=environment) == expected
    assert len(expected) <= 35


def test_a_name_with_a_variable_that_there_is_none_of_is_refused():
    with pytest.raises(KubeClusterError, match=r"has no variable JUPYTERHUB_USER. Write {user}, {uuid}, or"):
        cluster_name("dask-{JUPYTERHUB_USER}", user="x", nonce="0a1b2c", environment={"HOME": "/"})


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
