"""Whatever programs for dask-kubernetes' and dask-cuda's cluster managers name is here, or has a sentence."""

import ast
import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from dask_kubernetes.operator import KubeCluster as Stock
from dask_kubernetes.operator.kubecluster import kubecluster as stock_module

from gpudask import KubeCluster
from gpudask.kubecluster.stock import cuda
from gpudask.kubecluster.stock.options import CONFIGURATION

# What is not here, and why. Each is a sentence of docs/from-dask-kubernetes.md, too.
LEFT_OUT = {"generate_rich_output": "of its own display"}
NOT_READ = {
    "count": "its parts are read",
    "count.max": "a warning says what to write; the stock client does not use it either",
    "host": "of the classic KubeCluster, which is gone",
    "port": "of the classic KubeCluster, which is gone",
    "deploy-mode": "of the classic KubeCluster, which is gone",
    "interface": "of the classic KubeCluster, which is gone",
    "protocol": "of the classic KubeCluster, which is gone",
    "dashboard_address": "of the classic KubeCluster, which is gone",
    "scheduler-service-wait-timeout": "of the classic KubeCluster, which is gone",
    "scheduler-service-name-resolution-retries": "of the classic KubeCluster, which is gone",
    "scheduler-service-template": "of the classic KubeCluster, which is gone",
    "scheduler-pdb-template": "of the classic KubeCluster, which is gone",
    "scheduler-template": "of the classic KubeCluster, which is gone",
    "worker-template": "of the classic KubeCluster, which is gone",
    "worker-template-path": "of the classic KubeCluster, which is gone",
    "controller": "of the stock operator",
}

# dask-cuda 26.10.0: dask_cuda.LocalCUDACluster.__init__, and the arguments that it takes out of `**kwargs`. It is no
# requirement of the tests: its wheel needs CUDA's own to be imported.
LOCAL_CUDA_CLUSTER = [
    "CUDA_VISIBLE_DEVICES",
    "n_workers",
    "threads_per_worker",
    "memory_limit",
    "device_memory_limit",
    "enable_cudf_spill",
    "cudf_spill_stats",
    "local_directory",
    "protocol",
    "enable_tcp_over_ucx",
    "enable_infiniband",
    "enable_nvlink",
    "enable_rdmacm",
    "rmm_pool_size",
    "rmm_maximum_pool_size",
    "rmm_managed_memory",
    "rmm_async",
    "rmm_allocator_external_lib_list",
    "rmm_release_threshold",
    "rmm_log_directory",
    "rmm_track_allocations",
    "log_spilling",
    "pre_import",
    "data",
    "worker_class",
    "processes",
    "host",
]
# Of its earlier releases, and of distributed's LocalCluster, whose arguments it passes on.
EARLIER = ["jit_unspill", "shared_filesystem", "asynchronous", "loop", "security", "scheduler_port", "silence_logs"]


def words_of(function: Callable[..., Any]) -> set[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, word in inspect.signature(function).parameters.items() if word.kind in named}


def set_on_self(source: str) -> set[str]:
    """What its methods set on `self`."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    stored = [node for node in attributes if isinstance(node.ctx, ast.Store)]
    return {node.attr for node in stored if ast.unparse(node.value) == "self"}


def public_names() -> list[str]:
    """Its methods, properties and attributes."""
    own = set_on_self(Path(inspect.getfile(stock_module)).read_text()) | set(vars(Stock))
    return sorted(name for name in own if not name.startswith("_") and name not in LEFT_OUT)


def test_the_tables_are_of_the_release_that_is_installed():
    assert version("dask-kubernetes") == "2026.3.0", "look at its changes, then write the new release here"
    assert {"image", "forwarded_dashboard_port", "scale", "jupyter_link"} <= set(public_names())


@pytest.mark.parametrize("name", ["__init__", *public_names()])
def test_whatever_the_stock_client_has_is_here(name: str):
    (base,) = KubeCluster.__bases__
    assert hasattr(KubeCluster, name) or name in set_on_self(Path(inspect.getfile(base)).read_text())
    theirs, ours = getattr(Stock, name, None), getattr(KubeCluster, name, None)
    if callable(theirs):
        assert words_of(theirs) <= words_of(ours)


def test_whatever_distributeds_base_class_takes_is_taken():
    (base,) = KubeCluster.__bases__

    assert words_of(base.__init__) <= words_of(KubeCluster.__init__)


def configuration_keys(values: dict[str, Any]) -> list[str]:
    nested = [f"count.{key}" for key in values["count"]]
    return [*values, *nested]


def test_every_setting_of_the_stock_client_is_read_or_has_a_sentence():
    path = Path(inspect.getfile(stock_module)).parents[2] / "kubernetes.yaml"
    defaults = yaml.safe_load(path.read_text())["kubernetes"]

    assert set(configuration_keys(defaults)) == set(CONFIGURATION) | set(NOT_READ)
    for key, (argument, default) in CONFIGURATION.items():
        value = defaults
        for part in key.split("."):
            value = value[part]
        assert value == default, key
        assert argument in words_of(KubeCluster.__init__)


@pytest.mark.parametrize("name", [*LOCAL_CUDA_CLUSTER, *EARLIER])
def test_every_argument_of_local_cuda_cluster_is_taken_or_has_a_sentence(name: str):
    assert (name in words_of(KubeCluster.__init__)) + (name in cuda.NAMES) + (name in cuda.INSTEAD) == 1


@pytest.mark.parametrize("name", [*cuda.NAMES, *cuda.INSTEAD])
def test_and_is_in_the_docs(name: str):
    page = (Path(__file__).parents[3] / "docs" / "from-dask-kubernetes.md").read_text()

    assert f"`{name}" in page


@pytest.mark.parametrize("name", cuda.INSTEAD)
def test_and_each_sentence_says_what_to_do(name: str):
    _, sentence = cuda.INSTEAD[name]

    assert "write " in sentence or "leave it out" in sentence
