"""Whatever is passed: a valid manifest, or a `KubeClusterError`, and never a bare error out of our own code."""

import contextlib
from typing import Any

import pytest

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.manifest import manifest
from gpudask.kubecluster.stock import cuda
from gpudask.stock import conversion
from gpudask.kubecluster.stock.cluster_spec import make_cluster_spec
from gpudask.stock.notes import Notes
from gpudask.kubecluster.stock.options import CONFIGURATION, read_options

JUNK: list[Any] = [
    3,
    -1,
    0.5,
    10**30,
    float("nan"),
    True,
    "",
    "x",
    "'",
    "{",
    b"x",
    [],
    [3],
    [None],
    ["x", 3],
    {},
    {"x": None},
    {"limits": {"memory": []}},
    {"limits": {"memory": "much"}, "requests": None},
    {"spec": 3},
    {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster"},
    {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": {"name": "x"}, "spec": {"worker": {}}},
    {3: 4},
    (1, 2, 3),
    set(),
    Ellipsis,
]
ARGUMENTS = [
    "image",
    "n_workers",
    "gpus",
    "resources",
    "env",
    "worker_command",
    "idle_timeout",
    "scheduler_service_type",
    "protocol",
    "pools",
    "custom_cluster_spec",
    "create_mode",
    "scheduler_forward_port",
    "jupyter",
]


def made_of(given: dict[str, Any], others: dict[str, Any], configuration: Any) -> None:
    with contextlib.suppress(KubeClusterError):
        manifest("demo", read_options(given, others, configuration).arguments)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument(name: str, junk: Any):
    made_of({name: junk}, {}, {})
    made_of({name: junk, "gpus": 1} if name != "gpus" else {name: junk, "n_workers": 1}, {}, {})


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("name", [*cuda.NAMES, *cuda.INSTEAD])
def test_an_argument_of_local_cuda_cluster(name: str, junk: Any):
    made_of({}, {name: junk}, {})


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("key", CONFIGURATION)
@pytest.mark.filterwarnings("ignore:kubernetes.count.max")
def test_a_setting(key: str, junk: Any):
    first, _, second = key.partition(".")
    made_of({}, {}, {"kubernetes": {first: {second: junk} if second else junk}})


PLACES: list[tuple[str | int, ...]] = [
    ("metadata", "name"),
    ("metadata",),
    ("spec",),
    ("spec", "worker"),
    ("spec", "worker", "replicas"),
    ("spec", "worker", "spec"),
    ("spec", "worker", "spec", "containers"),
    *(("spec", "worker", "spec", "containers", 0, key) for key in ("image", "args", "env", "resources", "ports")),
    ("spec", "scheduler"),
    ("spec", "scheduler", "service"),
    ("spec", "scheduler", "spec", "containers"),
    ("spec", "idleTimeout"),
]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_field_of_a_stock_cluster(place: tuple[str | int, ...], junk: Any):
    body = make_cluster_spec("demo")
    node: Any = body
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = junk
    made_of({"custom_cluster_spec": body}, {}, {})


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_worker_group(junk: Any):
    for worker in (junk, {"spec": junk}, {"spec": {"containers": junk}}, {"spec": {"containers": [junk]}}):
        with contextlib.suppress(conversion.NotConvertibleError):
            conversion.convert_group("more", worker, "i", Notes())
