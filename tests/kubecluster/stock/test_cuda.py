"""LocalCUDACluster's arguments as a GPU pool."""

from typing import Any

import pytest

from gpudask.kubecluster.errors import KubeClusterTypeError, KubeClusterValueError
from gpudask.kubecluster.manifest import Arguments, manifest
from gpudask.kubecluster.stock.cuda import read_cuda

GPU: dict[str, Any] = {"name": "gpu", "gpu": {"count": 1}}
UP_TO_FOUR = {"autoscale": {"min": 0, "max": 4}}


def spec(**given: Any) -> Any:
    own = {name: given.pop(name) for name in ("n_workers", "gpus", "resources", "worker_command") if name in given}
    return manifest("demo", Arguments(**own, cuda=read_cuda(given, [])))["spec"]


TAKEN: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "nothing but a pool of memory": (
        {"rmm_pool_size": "20GB"},
        [{"name": "gpu", "gpu": {"count": 1, "rmmPoolSize": 20 * 10**9}, **UP_TO_FOUR}],
    ),
    "n_workers are GPU workers there": (
        {"n_workers": 2, "rmm_pool_size": 0.5, "device_memory_limit": "30GiB"},
        [
            {
                "name": "gpu",
                "gpu": {"count": 1, "deviceMemoryLimit": 30 * 2**30, "rmmPoolSize": "0.5"},
                "replicas": 2,
            }
        ],
    ),
    "as many pods as devices": ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [GPU | {"replicas": 4}]),
    "a list of devices": ({"CUDA_VISIBLE_DEVICES": [0, 1]}, [GPU | {"replicas": 2}]),
    "of which the first are used": ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "n_workers": 3}, [GPU | {"replicas": 3}]),
    "beside CPU workers": (
        {"n_workers": 2, "gpus": 8, "rmm_pool_size": "1GiB", "rmm_async": True},
        [
            {"name": "cpu", "replicas": 2},
            {
                "name": "gpu",
                "gpu": {"count": 1, "rmmPoolSize": 2**30},
                "autoscale": {"min": 0, "max": 8},
                "extraArgs": ["--rmm-async"],
            },
        ],
    ),
    "libraries": (
        {"gpus": (1, 1), "rmm_allocator_external_lib_list": "torch,cupy", "pre_import": ["cudf", "rmm"]},
        [
            {
                "name": "gpu",
                "gpu": {"count": 1, "rmmAllocatorFor": ["torch", "cupy"], "preImport": ["cudf", "rmm"]},
                "autoscale": {"min": 1, "max": 1},
            }
        ],
    ),
    "flags": (
        {
            "gpus": (1, 1),
            "enable_cudf_spill": True,
            "cudf_spill_stats": 1,
            "rmm_managed_memory": False,
            "rmm_release_threshold": "1GB",
            "local_directory": "/scratch",
        },
        [
            GPU
            | {
                "autoscale": {"min": 1, "max": 1},
                "extraArgs": [
                    *("--local-directory", "/scratch"),
                    "--enable-cudf-spill",
                    *("--cudf-spill-stats", "1"),
                    *("--rmm-release-threshold", "1GB"),
                ],
            }
        ],
    ),
    "no spilling": (
        {"gpus": (1, 1), "device_memory_limit": None},
        [{"name": "gpu", "gpu": {"count": 1, "deviceMemoryLimit": "1"}, "autoscale": {"min": 1, "max": 1}}],
    ),
    "threads and memory are of any worker": (
        {"n_workers": 2, "threads_per_worker": 3, "memory_limit": "8GB"},
        [{"name": "cpu", "replicas": 2, "nthreads": 3, "resources": {"memory": 8 * 10**9}}],
    ),
    "memory that resources say counts": (
        {"n_workers": 2, "memory_limit": "8GB", "resources": {"memory": "9Gi", "cpu": 2}},
        [{"name": "cpu", "replicas": 2, "resources": {"memory": "9Gi", "cpu": 2}}],
    ),
    "GPUs of the stock client's resources are dask-cuda's then": (
        {"n_workers": 1, "resources": {"nvidia.com/gpu": 2}, "rmm_pool_size": "1GiB"},
        [
            {
                "name": "gpu",
                "gpu": {"count": 2, "nodeSelector": {}, "rmmPoolSize": 2**30},
                "replicas": 1,
                "accepts": "any",
            }
        ],
    ),
    "what is off changes nothing": (
        {
            **dict.fromkeys(("jit_unspill", "enable_cudf_spill", "rmm_async", "log_spilling", "rmm_pool_size")),
            **dict.fromkeys(("enable_nvlink", "pre_import", "worker_class", "data", "CUDA_VISIBLE_DEVICES")),
            "device_memory_limit": "default",
            "memory_limit": "auto",
            "processes": True,
            "cudf_spill_stats": 0,
        },
        [{"name": "cpu", "autoscale": {"min": 1, "max": 4}}],
    ),
}


@pytest.mark.parametrize(("given", "expected"), TAKEN.values(), ids=TAKEN)
def test_it_is_taken(given: dict[str, Any], expected: list[dict[str, Any]]):
    assert spec(**given)["pools"] == expected


def test_ucx_is_ucxx_now():
    assert manifest("demo", Arguments(gpus=1, protocol="ucx"))["spec"]["protocol"] == "ucxx"
    assert manifest("demo", Arguments(gpus=1, protocol="tcp://"))["spec"]["protocol"] == "tcp"


def test_infiniband_makes_it_ucx():
    made = spec(gpus=1, enable_infiniband=True, enable_nvlink=False)

    assert made["protocol"] == "ucxx"
    assert made["pools"][0]["extraArgs"] == ["--enable-infiniband", "--disable-nvlink"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "what dask-cuda has no more": ({"jit_unspill": True}, r"jit_unspill=True .*Write enable_cudf_spill=True for cuDF"),
    "a share of a node's memory": ({"memory_limit": 0.5}, r"memory_limit=0.5: .*Write resources={'memory': '64Gi'}"),
    "no amount": ({"rmm_pool_size": "much"}, r"rmm_pool_size='much'.*Write a share of the device such as 0.5"),
    "a device's number": ({"CUDA_VISIBLE_DEVICES": 3}, r"their number counts here.*Write gpus=\(4, 4\)"),
    "no device": ({"CUDA_VISIBLE_DEVICES": ""}, r"CUDA_VISIBLE_DEVICES=''"),
    "no list": ({"pre_import": 3}, r"pre_import=3: it is a list of names"),
    "threads in processes": ({"processes": False}, r"processes=False has no counterpart: each GPU .*Leave it out"),
    "threads that are none": ({"threads_per_worker": 0}, r"spec.pools\[0\].nthreads"),
    "a library that RMM does not know": (
        {"rmm_allocator_external_lib_list": ["jax"]},
        r"spec.pools\[0\].gpu.rmmAllocatorFor\[0\]",
    ),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_it_is_answered_by_one_sentence(given: dict[str, Any], said: str):
    with pytest.raises(KubeClusterValueError, match="(?s)" + said):
        spec(**given)


def test_an_argument_that_there_is_none_of_is_answered_with_the_one_that_is_meant():
    with pytest.raises(KubeClusterTypeError, match=r"no argument n_worker\. Did you mean n_workers=\?"):
        read_cuda({"n_worker": 3}, ["n_workers"])
    with pytest.raises(TypeError, match=r"Did you mean rmm_pool_size=\?"):
        read_cuda({"rmm_poolsize": "1GB"}, [])
    with pytest.raises(TypeError, match=r"help\(gpudask.KubeCluster\) has its arguments"):
        read_cuda({"zzz": 1}, ["n_workers"])
