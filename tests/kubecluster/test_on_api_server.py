"""Sizes on a real API server: the rules of server-side apply that the fake one only imitates."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import yaml

from gpudask import KubeClusterError, make_cluster_spec
from gpudask.api import Json
from gpudask.api.resource import MIRROR_MANAGER
from gpudask.cli.output import Exit
from gpudask.kubecluster.cluster import KubeCluster
from gpudask.kubecluster.manifest import Arguments, manifest
from gpudask.kubecluster.kube.pods import follow_scheduler
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.stock import cuda
from gpudask.kubecluster.stock.options import read_options
from tests.cli.invoke import invoke
from tests.kubectl import Kubectl

pytestmark = pytest.mark.api
MIXED = Path(__file__).parents[2] / "examples" / "mixed.yaml"


class Sizes(KubeCluster):
    """A KubeCluster that needs no scheduler: no pod runs behind an API-only server."""

    async def _start(self) -> None:
        self._resource.server = await Server.connect(self._resource.namespace)
        self._workers.wait_for_exactly = no_workers


async def no_workers(*_: object) -> list[str]:
    return []


@pytest.fixture
def sizes(in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sizes]:
    in_namespace("apply", "-f", str(MIXED))
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    with Sizes.from_name("demo", namespace=in_namespace.namespace) as cluster:
        yield cluster


def overrides(kubectl: Kubectl) -> dict[str, int]:
    spec = yaml.safe_load(kubectl("get", "gdc", "demo", "-o", "yaml").stdout)["spec"]
    return {entry["pool"]: entry["replicas"] for entry in spec.get("overrides", [])}


def test_sizes_of_several_pools_are_set_changed_and_given_back(sizes: Sizes, in_namespace: Kubectl):
    sizes.scale(4, pool="gpu")
    sizes.scale(2, pool="cpu")
    sizes.scale(3, pool="gpu")
    assert overrides(in_namespace) == {"gpu": 3, "cpu": 2}

    sizes.unscale("gpu")
    assert overrides(in_namespace) == {"cpu": 2}

    sizes.scale(None, pool="cpu")
    assert overrides(in_namespace) == {}


def test_applying_the_manifest_again_keeps_the_sizes_that_people_set(sizes: Sizes, in_namespace: Kubectl):
    sizes.scale(4, pool="gpu")

    in_namespace("apply", "-f", str(MIXED))

    assert overrides(in_namespace) == {"gpu": 4}


def test_what_a_user_of_the_stock_client_set_is_changed_and_given_back_from_here_too(
    sizes: Sizes, in_namespace: Kubectl
):
    def mirrored(entry: str) -> None:
        patch = f'{{"spec": {{"overrides": [{entry}]}}}}'
        in_namespace("patch", "gdc", "demo", "--type=merge", f"--field-manager={MIRROR_MANAGER}", "-p", patch)

    mirrored('{"pool": "gpu", "min": 1, "max": 3, "by": "ada"}')
    sizes.scale(2, pool="gpu")
    sizes.scale(1, pool="cpu")
    assert overrides(in_namespace) == {"gpu": 2, "cpu": 1}
    sizes.unscale("gpu")
    assert overrides(in_namespace) == {"cpu": 1}

    mirrored('{"pool": "gpu", "replicas": 5, "by": "ada"}')
    sizes.adapt(0, 4, pool="gpu")
    sizes.unscale("gpu")
    assert overrides(in_namespace) == {}

    mirrored('{"pool": "gpu", "min": 1, "max": 3, "by": "ada"}')
    gpudask = invoke("scale", "demo", "gpu=2", "cpu=1", "-n", in_namespace.namespace)
    assert gpudask.exit_code == 0, gpudask.output
    assert overrides(in_namespace) == {"gpu": 2, "cpu": 1}
    gpudask = invoke("scale", "demo", "gpu=auto", "-n", in_namespace.namespace)
    assert gpudask.exit_code == 0, gpudask.output
    assert overrides(in_namespace) == {"cpu": 1}


@pytest.mark.parametrize("manager", ["kubectl-edit", MIRROR_MANAGER, "gpudask-client"])
def test_what_is_set_beside_an_empty_list_of_somebody_else_is_given_back(
    sizes: Sizes, in_namespace: Kubectl, manager: str
):
    empty = '{"spec": {"overrides": []}}'
    in_namespace("patch", "gdc", "demo", "--type=merge", f"--field-manager={manager}", "-p", empty)

    with sizes.hold("gpu", 2):
        assert overrides(in_namespace) == {"gpu": 2}
    assert overrides(in_namespace) == {}

    sizes.scale(2, pool="gpu")
    sizes.scale(1, pool="cpu")
    sizes.unscale("gpu")
    assert overrides(in_namespace) == {"cpu": 1}
    sizes.unscale("cpu")
    assert overrides(in_namespace) == {}


def test_a_hold_gives_back_what_a_user_of_the_stock_client_set(sizes: Sizes, in_namespace: Kubectl):
    theirs = '{"spec": {"overrides": [{"pool": "gpu", "min": 1, "max": 3, "by": "ada"}]}}'
    in_namespace("patch", "gdc", "demo", "--type=merge", f"--field-manager={MIRROR_MANAGER}", "-p", theirs)

    with sizes.hold("gpu", 2):
        assert overrides(in_namespace) == {"gpu": 2}
    assert limits(in_namespace) == {"gpu": (1, 3)}

    with sizes.hold("gpu", 2):
        theirs = theirs.replace('"max": 3', '"max": 5')
        in_namespace("patch", "gdc", "demo", "--type=merge", f"--field-manager={MIRROR_MANAGER}", "-p", theirs)
    assert limits(in_namespace) == {"gpu": (1, 5)}, "what somebody set meanwhile stays"


@pytest.mark.parametrize("before", ["none", "a size", "the stock client's"])
@pytest.mark.parametrize("first_out", ["the lower", "the upper"])
def test_two_holds_end_in_any_order(sizes: Sizes, in_namespace: Kubectl, before: str, first_out: str):
    if before == "a size":
        sizes.scale(7, pool="gpu")
    if before == "the stock client's":
        theirs = '{"spec": {"overrides": [{"pool": "gpu", "replicas": 7, "by": "ada"}]}}'
        in_namespace("patch", "gdc", "demo", "--type=merge", f"--field-manager={MIRROR_MANAGER}", "-p", theirs)
    lower, upper = sizes.hold("gpu", 2), sizes.hold("gpu", 3)
    with upper if first_out == "the lower" else lower:
        pass  # holds that ended leave nothing behind

    lower.__enter__()
    upper.__enter__()
    sizes.scale(1, pool="cpu")
    assert overrides(in_namespace) == {"gpu": 3, "cpu": 1}
    first, last = (lower, upper) if first_out == "the lower" else (upper, lower)
    first.__exit__(None, None, None)
    assert overrides(in_namespace) == {"gpu": 3 if first is lower else 2, "cpu": 1}
    last.__exit__(None, None, None)

    assert overrides(in_namespace) == {"cpu": 1} | ({} if before == "none" else {"gpu": 7})
    assert "holds-gpu" not in in_namespace("get", "gdc", "demo", "-o", "jsonpath={.metadata.annotations}").stdout


def test_an_override_that_a_manifest_holds_too_is_reported_when_it_stays(sizes: Sizes, in_namespace: Kubectl):
    manifest = yaml.safe_load(MIXED.read_text())
    manifest["spec"]["overrides"] = [{"pool": "gpu", "replicas": 7, "by": "git"}]
    in_namespace(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=argocd",
        "-f",
        "-",
        stdin=yaml.safe_dump(manifest),
    )
    sizes.scale(4, pool="gpu")
    assert overrides(in_namespace) == {"gpu": 4}

    with pytest.raises(KubeClusterError, match="argocd set it as well"):
        sizes.unscale("gpu")


def test_a_size_beyond_the_schema_is_refused_in_the_servers_words(sizes: Sizes):
    with pytest.raises(KubeClusterError, match="should be greater than or equal to 0"):
        sizes.scale(-1, pool="gpu")


def limits(kubectl: Kubectl) -> dict[str, tuple[int, int]]:
    spec = yaml.safe_load(kubectl("get", "gdc", "demo", "-o", "yaml").stdout)["spec"]
    return {entry["pool"]: (entry["min"], entry["max"]) for entry in spec.get("overrides", [])}


def test_a_size_becomes_limits_and_a_size_again(sizes: Sizes, in_namespace: Kubectl):
    sizes.scale(4, pool="gpu")
    sizes.adapt(1, 9, pool="gpu")
    assert limits(in_namespace) == {"gpu": (1, 9)}

    in_namespace("apply", "-f", str(MIXED))
    assert limits(in_namespace) == {"gpu": (1, 9)}

    sizes.scale(2, pool="gpu")
    assert overrides(in_namespace) == {"gpu": 2}


def test_limits_the_wrong_way_round_are_refused_in_the_servers_words(sizes: Sizes):
    with pytest.raises(KubeClusterError, match="min is larger than max"):
        sizes.adapt(5, 2, pool="gpu")


def test_a_pool_is_added_and_removed_and_the_sizes_of_others_stay(sizes: Sizes, in_namespace: Kubectl):
    def pools() -> list[str]:
        spec = yaml.safe_load(in_namespace("get", "gdc", "demo", "-o", "yaml").stdout)["spec"]
        return [pool["name"] for pool in spec["pools"]]

    sizes.scale(4, pool="gpu")
    sizes.add_pool("himem", n_workers=(0, 2), resources={"memory": "64Gi"})
    sizes.scale(1, pool="himem")
    assert pools() == ["cpu", "gpu", "himem"]
    sizes.remove_pool("himem")
    assert pools() == ["cpu", "gpu"]
    assert overrides(in_namespace) == {"gpu": 4}


def test_a_misspelt_field_of_a_new_pool_is_named(sizes: Sizes):
    with pytest.raises(KubeClusterError, match=r'unknown field "spec.pools\[2\].resorces"'):
        sizes.add_pool("himem", n_workers=1, resorces={"memory": "64Gi"})


def test_suspending_is_written_and_taken_back(sizes: Sizes, in_namespace: Kubectl):
    sizes.suspend()
    assert in_namespace("get", "gdc", "demo", "-o", "jsonpath={.spec.suspend}").stdout == "true"


async def test_what_the_words_make_is_accepted_changed_watched_and_deleted(
    in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    server = await Server.connect(in_namespace.namespace)
    words = Arguments(n_workers=2, gpus=8, resources={"memory": "4Gi"}, env={"A": 1}, scheduler_service_type="NodePort")
    made = await server.create(manifest("mine", words))
    with pytest.raises(KubeClusterError, match="exists already") as raised:
        await server.create(manifest("mine", words))
    assert raised.value.status == 409

    changes = server.changes(made["metadata"]["resourceVersion"], name="mine")
    await server.merge("mine", {"spec": {"suspend": True}})
    kind, changed = await asyncio.wait_for(anext(changes), 60)
    assert (kind, changed["spec"]["suspend"]) == ("MODIFIED", True)
    with pytest.raises(KubeClusterError) as raised:
        await server.delete("mine", uid="11111111-1111-1111-1111-111111111111")
    assert raised.value.status == 409
    assert await server.delete("mine", uid=made["metadata"]["uid"])
    assert not await server.delete("mine")

    assert (await asyncio.wait_for(anext(changes), 60))[0] == "DELETED"
    await changes.aclose()
    assert await server.find("mine") is None


async def test_a_misspelt_field_of_a_new_cluster_is_named(in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    server = await Server.connect(in_namespace.namespace)

    with pytest.raises(KubeClusterError, match=r'unknown field "spec.pools\[0\].gpus"'):
        await server.create(manifest("mine", Arguments(pools=[{"name": "cpu", "gpus": 2}])))


def test_an_unknown_name_is_answered_with_those_that_exist(sizes: Sizes):
    with (
        Sizes.from_name("dmeo", namespace=sizes.namespace) as other,
        pytest.raises(KubeClusterError, match="there are: demo"),
    ):
        other.scale(1)


def test_a_cluster_in_a_namespace_that_there_is_none_of_says_so(sizes: Sizes):
    with pytest.raises(KubeClusterError, match=r"there is no namespace 'typo'.*kubectl create namespace typo"):
        asyncio.run(create_in("typo"))
    made = invoke("create", "new", "-n", "typo", "--image", "me/dask:1", "--workers", "1")
    assert made.exit_code == Exit.NOT_FOUND
    assert "there is no namespace 'typo'" in made.output
    assert "helm" not in made.output


async def create_in(namespace: str) -> None:
    server = await Server.connect(namespace)
    await server.create(manifest("new", Arguments(image="dask")))


async def test_a_scheduler_s_pods_are_followed(in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    server = await Server.connect(in_namespace.namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "demo-scheduler-0",
            "labels": {"gpudask.dev/cluster": "demo", "dask.org/component": "scheduler"},
        },
        # No controller fills in a service account here.
        "spec": {"containers": [{"name": "dask", "image": "none"}], "automountServiceAccountToken": False},
    }

    async with asyncio.timeout(60), aclosing(follow_scheduler(server, "demo")) as states:
        assert await anext(states) == set()
        await asyncio.to_thread(in_namespace, "create", "-f", "-", stdin=yaml.safe_dump(pod))
        assert len(await anext(states)) == 1
        await asyncio.to_thread(in_namespace, "delete", "pod", "demo-scheduler-0", "--force", "--grace-period=0")
        async for there in states:
            if not there:
                break


OF_OTHERS = {
    "rapids": {"n_workers": 3, "worker_command": "dask-cuda-worker", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
    "limits": {"n_workers": 0, "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": 2}}},
    "whole": {"custom_cluster_spec": make_cluster_spec("whole", n_workers=2, resources={"limits": {"memory": "2Gi"}})},
    "cuda": {"CUDA_VISIBLE_DEVICES": "0,1", "rmm_pool_size": "20GB", "device_memory_limit": 0.8, "rmm_async": True},
    "host": {"n_workers": 2, "memory_limit": "8GB", "threads_per_worker": 2, "local_directory": "/scratch"},
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_what_programs_for_others_pass_is_a_cluster_that_the_server_accepts(
    name: str, in_namespace: Kubectl, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KUBECONFIG", str(in_namespace.kubeconfig))
    given = {key: value for key, value in OF_OTHERS[name].items() if key not in cuda.NAMES}
    others = {key: value for key, value in OF_OTHERS[name].items() if key in cuda.NAMES}
    body = manifest(name, read_options(given, others, {}).arguments)

    async def create() -> Json:
        server = await Server.connect(in_namespace.namespace)
        return await server.create(body)

    made = asyncio.run(create())["spec"]
    assert [pool["name"] for pool in made["pools"]] == [pool["name"] for pool in body["spec"]["pools"]]


def test_a_group_and_the_default_pool_are_sized_by_the_stock_clients_words(sizes: Sizes, in_namespace: Kubectl):
    sizes.add_worker_group("high-mem", 1, resources={"limits": {"memory": "4Gi"}})
    sizes.scale(2)
    sizes.scale(3, worker_group="high-mem")
    assert overrides(in_namespace) == {"cpu": 2, "highmem": 3}
    sizes.delete_worker_group("high-mem")
    assert overrides(in_namespace) == {"cpu": 2}
