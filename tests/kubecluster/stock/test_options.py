"""What the program passes, and what Dask's configuration says where it does not."""

from typing import Any

import pytest

from gpudask import CreateMode
from gpudask.kubecluster.errors import KubeClusterValueError
from gpudask.kubecluster.stock.cluster_spec import make_cluster_spec
from gpudask.kubecluster.stock.options import CONFIGURATION, Options, read_options


def options(configuration: Any = None, **given: Any) -> Options:
    return read_options(given, {}, {"kubernetes": configuration} if configuration is not None else {})


def test_configuration_fills_in_what_the_program_leaves_out():
    read = options(
        {
            "name": "dask-{JUPYTERHUB_USER}",
            "namespace": "lab",
            "image": "me/dask:1",
            "count": {"start": 3},
            "resources": {"limits": {"memory": "4Gi"}},
            "env": {"A": 1},
            "worker-command": "dask worker --lifetime 1h",
            "port-forward-cluster-ip": True,
            "create-mode": "CREATE_ONLY",
            "shutdown-on-close": False,
            "resource-timeout": 30,
            "scheduler-service-type": "NodePort",
            "scheduler-forward-port": "8787",
            "scheduler-jupyter": True,
            "idle-timeout": 600,
        }
    )

    assert (read.name, read.namespace, read.create_mode) == ("dask-{JUPYTERHUB_USER}", "lab", CreateMode.CREATE_ONLY)
    assert (read.shutdown_on_close, read.resource_timeout) == (False, 30)
    assert (read.dashboard_port, read.always_forwards) == (8787, True)
    arguments = read.arguments
    assert (arguments.image, arguments.n_workers, arguments.env) == ("me/dask:1", 3, {"A": 1})
    assert (arguments.resources, arguments.idle_timeout) == ({"limits": {"memory": "4Gi"}}, 600)
    assert (arguments.worker_command, arguments.jupyter) == ("dask worker --lifetime 1h", True)
    assert arguments.scheduler_service_type == "NodePort"
    assert arguments.given() == [], "the program gave none of it"


def test_what_the_program_says_counts():
    read = options({"image": "theirs", "count": {"start": 3}, "shutdown-on-close": False}, image="mine", name="x")

    assert (read.arguments.image, read.arguments.n_workers, read.name) == ("mine", 3, "x")
    assert read.arguments.given() == ["image"]
    assert options({"scheduler-jupyter": True}, jupyter=False).arguments.jupyter is None


def test_the_stock_clients_own_defaults_were_said_by_nobody():
    defaults: dict[str, Any] = {}
    for key, (_, default) in CONFIGURATION.items():
        first, _, second = key.partition(".")
        defaults[first] = {second: default} if second else default

    assert options(defaults) == options()


def test_names_from_the_environment_have_underscores():
    read = options({"worker_command": "dask worker --lifetime 1h", "create_mode": "CONNECT_ONLY"})

    assert read.arguments.worker_command == "dask worker --lifetime 1h"
    assert read.create_mode is CreateMode.CONNECT_ONLY


@pytest.mark.parametrize("configuration", ["x", 3, [], {"count": 3}, {"count": None}, {"count": {"start": None}}])
def test_a_configuration_that_is_none_is_no_error(configuration: Any):
    assert options(configuration) == options()


def test_our_own_image_comes_before_the_stock_clients():
    both = {"gpudask": {"image": "ours"}, "kubernetes": {"image": "theirs"}}

    assert read_options({}, {}, both).arguments.image == "ours"
    assert read_options({"image": "mine"}, {}, both).arguments.image == "mine"


def test_a_maximum_of_workers_is_not_used_and_that_is_said():
    with pytest.warns(UserWarning, match=r"kubernetes.count.max=8 .*write n_workers=\(0, 8\)"):
        options({"count": {"max": 8}})


def test_a_manifest_counts_as_a_whole():
    spec = {"metadata": {"name": "own"}, "spec": {"image": "i", "pools": [{"name": "cpu"}]}}
    read = options({"image": "theirs", "count": {"start": 3}, "name": "theirs"}, custom_cluster_spec=spec)

    assert read.arguments.given() == ["custom_cluster_spec"]
    assert (read.arguments.image, read.arguments.n_workers, read.name) == (None, None, None)


def test_pools_count_as_a_whole_and_the_image_is_beside_them():
    read = options({"image": "theirs", "count": {"start": 3}}, pools=[{"name": "cpu"}])

    assert (read.arguments.image, read.arguments.n_workers) == ("theirs", None)


def test_a_configured_manifest_is_used():
    read = options({"custom-cluster-spec": make_cluster_spec("lab", image="me/dask:1")})

    assert read.arguments.custom_cluster_spec["spec"]["image"] == "me/dask:1"
    with pytest.raises(KubeClusterValueError, match=r"image, n_workers beside kubernetes.custom-cluster-spec"):
        options({"custom-cluster-spec": make_cluster_spec("lab")}, n_workers=3, image="i")
    assert (
        options({"custom-cluster-spec": "/no/such"}, create_mode="CONNECT_ONLY").arguments.custom_cluster_spec is None
    )


def test_a_timeout_of_the_program_counts_and_not_a_configured_one_in_the_stock_clients_word():
    assert options({"resource-timeout": 30}, timeout=5).resource_timeout is None


@pytest.mark.parametrize("port", ["http", -1, 70000, [1]])
def test_a_port_that_is_none_is_refused(port: Any):
    with pytest.raises(KubeClusterValueError, match=r"scheduler_forward_port=.*Write scheduler_forward_port=8787"):
        options(scheduler_forward_port=port)
