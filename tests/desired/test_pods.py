"""What the pods are told: names, protocol, environment, templates."""

from __future__ import annotations

from gpudask.api import Json

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpudask.api import addresses
from gpudask.api.pool import POOL_NAME
from gpudask.api.resource import CLUSTER_NAME
from gpudask.desired import names
from gpudask.desired.scheduler import scheduler_pod
from gpudask.desired.workers import worker_pod
from gpudask.launcher.script import one_process
from tests.builders import a_cluster, a_pool
from tests.eventually import eventually
from tests.kubectl import Kubectl

clusters = st.from_regex(CLUSTER_NAME, fullmatch=True).filter(lambda name: len(name) <= 35)
clusters |= st.sampled_from(["a", "a-b", "a-b-worker-1", "a-scheduler", "a-b-scheduler", "a-token"])
pools = st.from_regex(POOL_NAME, fullmatch=True) | st.sampled_from(["b", "worker", "token", "preload"])
numbers = st.integers(0, 4999)


def of(pod: Json) -> Json:
    return pod["spec"]["containers"][0]


def worker(**spec: Any) -> Json:
    cluster = a_cluster(**spec) if "pools" not in spec else a_cluster(*spec.pop("pools"), **spec)
    return worker_pod(cluster, cluster.spec.pools[0], 3, "abcde")


def scheduler(**spec: Any) -> Json:
    return scheduler_pod(a_cluster(**spec), "demo-scheduler-12345", "preload")


def value(pod: Json, name: str) -> str | None:
    return next((item.get("value") for item in of(pod)["env"] if item["name"] == name), None)


worker_pods = st.tuples(clusters, pools.filter(lambda name: name != "scheduler"), numbers)


@given(worker_pods, worker_pods)
def test_two_worker_pods_never_have_one_name(one: tuple[str, str, int], other: tuple[str, str, int]):
    assume(one != other)
    assert names.worker_pod(*one) != names.worker_pod(*other)


@given(clusters, pools, numbers, clusters)
def test_a_worker_pod_never_has_a_schedulers_name(one: str, pool: str, n: int, other: str):
    assume(pool != "scheduler")
    made = {names.scheduler_pod(other, "uid", frozenset()), addresses.service(other)}
    assert names.worker_pod(one, pool, n) not in made


@given(clusters, pools, numbers)
def test_a_pods_name_is_a_host_name_and_ends_in_its_number(cluster: str, pool: str, number: int):
    name = names.worker_pod(cluster, pool, number)
    assert len(name) <= 63
    assert name.rpartition("-")[2] == str(number)
    assert f"{name}-worker" not in name
    assert names.dask_name(name, "abcde").partition("-worker-")[0].rpartition("-")[2] or "-worker-" in cluster


@given(st.integers(0, 8))
def test_a_schedulers_successor_has_another_name(count: int):
    taken: set[str] = set()
    for _ in range(count):
        taken.add(names.scheduler_pod("demo", "uid", frozenset(taken)))
    assert len(taken) == count


def test_the_closer_word_wins_in_the_environment():
    env = [{"name": "A", "value": "cluster"}, {"name": "DASK_X__Y", "value": "cluster"}]
    own = [{"name": "A", "value": "pool"}, {"name": "OMP_NUM_THREADS", "value": "8"}]
    pod = worker(pools=[a_pool(env=own)], env=env, config={"x": {"y": 1, "z": 2}})
    found = {name: value(pod, name) for name in ("A", "DASK_X__Y", "DASK_X__Z", "OMP_NUM_THREADS")}
    assert found == {"A": "pool", "DASK_X__Y": "cluster", "DASK_X__Z": "2", "OMP_NUM_THREADS": "8"}


def test_each_variable_stands_there_once():
    pod = worker(pools=[a_pool(env=[{"name": "OMP_NUM_THREADS", "value": "8"}])])
    listed = [item["name"] for item in of(pod)["env"]]
    assert len(listed) == len(set(listed))


def test_a_value_from_elsewhere_replaces_a_plain_one():
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    pod = worker(pools=[a_pool(env=[{"name": "A", "valueFrom": source}])], env=[{"name": "A", "value": "cluster"}])
    assert [item for item in of(pod)["env"] if item["name"] == "A"] == [{"name": "A", "valueFrom": source}]


@pytest.mark.parametrize("protocol", ["tls", "ws", "wss", "ucxx"])
def test_every_peer_speaks_the_protocol(protocol: str):
    for pod in (worker(protocol=protocol), scheduler(protocol=protocol)):
        arguments = of(pod)["args"]
        assert arguments[arguments.index("--protocol") + 1] == protocol
    assert addresses.scheduler_address("demo", "default", protocol) in of(worker(protocol=protocol))["args"]


def test_a_gpu_pod_gets_its_devices_nodes_and_launcher():
    pod = worker(pools=[a_pool("gpu", gpu={"count": 2, "resourceName": "nvidia.com/mig-1g.10gb"})])
    assert of(pod)["args"][:3] == ["dask", "cuda", "worker"]
    assert of(pod)["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "2"
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert {item["key"] for item in pod["spec"]["tolerations"]} == {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"}
    assert of(pod)["args"][-2:] == ["--resources", "GPU=1"]


@pytest.mark.parametrize(
    ("field", "value", "options"),
    [
        ("deviceMemoryLimit", "40Gi", ["--device-memory-limit", str(40 * 2**30)]),
        ("deviceMemoryLimit", "0.5", ["--device-memory-limit", "0.5"]),
        ("deviceMemoryLimit", 1, ["--device-memory-limit", "1.0"]),
        ("rmmPoolSize", 2**30, ["--rmm-pool-size", str(2**30)]),
        ("rmmPoolSize", "4G", ["--rmm-pool-size", "4000000000"]),
        ("rmmAllocatorFor", ["cupy", "torch"], ["--set-rmm-allocator-for-libs", "cupy,torch"]),
        ("preImport", ["cupy", "cupyx.scipy"], ["--pre-import", "cupy,cupyx.scipy"]),
    ],
)
def test_what_a_pool_says_of_its_gpus_memory_and_modules_is_told_to_dask_cuda(
    field: str, value: Any, options: list[str]
):
    pod = worker(pools=[a_pool("gpu", gpu={field: value, "count": 2}, extraArgs=["--last"])])
    assert of(pod)["args"][-3:] == [*options, "--last"]


READ_ONLY = {"name": "dask", "securityContext": {"readOnlyRootFilesystem": True}}
TEMPORARY = {"volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}]}  # noqa: S108 - in a pod


@pytest.mark.parametrize(
    ("gpu", "container", "in_one_process"),
    [
        pytest.param({}, {}, True, id="one device"),
        pytest.param({"launcher": "dask-cuda"}, {}, True, id="the default, written"),
        pytest.param({"count": 2}, {}, False, id="several devices"),
        pytest.param({"launcher": "dask-cuda-nanny"}, {}, False, id="a nanny is wanted"),
        pytest.param({"launcher": "dask"}, {}, False, id="not of dask-cuda"),
        pytest.param({}, {"name": "dask", "args": ["sleep", "1"]}, False, id="arguments of a template"),
        pytest.param({}, READ_ONLY, False, id="nowhere to write a preload's text"),
        pytest.param({}, READ_ONLY | TEMPORARY, True, id="somewhere to write it"),
    ],
)
def test_the_worker_of_a_pods_only_device_runs_without_a_nanny(gpu: Json, container: Json, in_one_process: bool):
    template = {"spec": {"containers": [container]}} if container else {}
    pod = worker(pools=[a_pool("gpu", gpu=gpu, extraArgs=["--rmm-async"], template=template)])
    ours = ["--preload", one_process(), "--rmm-async"]
    assert (of(pod)["args"][-3:] == ours) == in_one_process
    assert (one_process() in of(pod)["args"]) == in_one_process


def test_every_pythons_strings_have_the_same_hash_and_nvidias_load_kernels_when_they_are_used():
    def environment(gpu: Json | None) -> dict[str, str]:
        return {item["name"]: item["value"] for item in of(worker(pools=[a_pool(gpu=gpu)]))["env"]}

    assert environment(None)["PYTHONHASHSEED"] == environment({})["PYTHONHASHSEED"] == "6640"
    assert environment({})["CUDA_MODULE_LOADING"] == "LAZY"
    assert "CUDA_MODULE_LOADING" not in environment(None) | environment({"launcher": "dask"})


def test_gpu_pods_prefer_nodes_that_have_some_and_others_prefer_nodes_without_gpus():
    of_gpus = worker(pools=[a_pool("gpu", gpu={"count": 1})])
    [preferred] = of_gpus["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    [wanted] = preferred["podAffinityTerm"]["labelSelector"]["matchExpressions"]
    assert (wanted["operator"], of_gpus["metadata"]["labels"][wanted["key"]]) == ("Exists", "true")
    without = worker(pools=[a_pool()])
    assert wanted["key"] not in without["metadata"]["labels"]
    assert list(without["spec"]["affinity"]) == ["nodeAffinity"]


def test_other_vendors_get_one_plain_worker_for_all_devices():
    pod = worker(pools=[a_pool("gpu", gpu={"count": 2, "launcher": "dask", "resourceName": "amd.com/gpu"})])
    assert of(pod)["args"][:2] == ["dask", "worker"]
    assert "--no-nanny" in of(pod)["args"]
    assert of(pod)["args"][-2:] == ["--resources", "GPU=2"]


def test_what_lies_in_dev_shm_is_no_workers_memory():
    pod = worker(pools=[a_pool("gpu", gpu={"count": 4}, resources={"memory": "18Gi"}, shmSize="2Gi")])
    args = of(pod)["args"]
    assert args[args.index("--memory-limit") + 1] == str(4 * 1024**3)
    assert of(pod)["resources"]["limits"]["memory"] == "18Gi"


def test_compiled_kernels_are_kept_on_the_node():
    pod = worker(pools=[a_pool("gpu", gpu={"kernelCache": "/var/lib/team-a"}, shmSize="1Gi")])
    (kernels,) = (volume for volume in pod["spec"]["volumes"] if "hostPath" in volume)
    assert kernels["hostPath"] == {"path": "/var/lib/team-a", "type": "Directory"}
    places = {mount["name"]: mount["mountPath"] for mount in of(pod)["volumeMounts"]}
    assert places["gpudask-shm"].endswith("/shm")
    values = {item["name"]: item.get("value", "") for item in of(pod)["env"]}
    for name in ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR"):
        assert values[name].startswith(places[kernels["name"]] + "/")


def test_the_memory_limit_is_each_workers_part():
    pod = worker(pools=[a_pool("gpu", gpu={"count": 4}, resources={"memory": "8Gi"})])
    assert str(2 * 1024**3) in of(pod)["args"]


def test_a_template_reaches_everything_but_what_the_operator_relies_on():
    template = {
        "metadata": {"labels": {"team": "a", "gpudask.dev/pool": "other"}},
        "spec": {"priorityClassName": "high", "containers": [{"name": "dask", "workingDir": "/w"}]},
    }
    pod = worker(template=template)
    assert (pod["spec"]["priorityClassName"], of(pod)["workingDir"]) == ("high", "/w")
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["gpudask.dev/pool"] == "cpu"


def test_a_pools_template_goes_over_the_clusters():
    pod = worker(
        pools=[a_pool(template={"spec": {"priorityClassName": "pool"}})],
        template={"spec": {"priorityClassName": "cluster", "hostNetwork": True}},
    )
    assert (pod["spec"]["priorityClassName"], pod["spec"]["hostNetwork"]) == ("pool", True)


def test_every_pod_has_no_account_and_says_what_it_needs():
    for pod in (worker(), scheduler()):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert of(pod)["resources"]["requests"]


@pytest.fixture(scope="module")
def restricted(kubectl: Kubectl) -> Kubectl:
    """kubectl in a namespace where Pod Security enforces the restricted level, once it does."""
    name = "restricted"
    labels = {"pod-security.kubernetes.io/enforce": name}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    inside, plain = kubectl.inside(name), {"name": "c", "image": "i"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": {"containers": [plain]}}
    eventually(lambda: 'violates PodSecurity "restricted' in dry_run(inside, pod), "another pod is refused")
    return inside


def dry_run(kubectl: Kubectl, pod: Json) -> str:
    """What the API server says against a pod; empty: it would make it."""
    body = pod | {"metadata": pod["metadata"] | {"namespace": kubectl.namespace}}
    done = kubectl.attempt("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(body))
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.api
@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(scheduler(), id="scheduler"),
        pytest.param(worker(), id="worker"),
        pytest.param(worker(pools=[a_pool("gpu", gpu={"count": 2}, shmSize="1Gi")], protocol="ucxx"), id="gpu"),
        pytest.param(worker(pools=[a_pool("gpu", gpu={"launcher": "dask"})]), id="gpu of another vendor"),
    ],
)
def test_every_pod_passes_the_restricted_level(restricted: Kubectl, pod: Json):
    assert dry_run(restricted, pod) == ""


TEMPLATE = {"spec": {"containers": [{"name": "dask", "args": ["sh", "-c", "exec dask-worker"]}]}}


def test_a_command_of_its_own_gets_as_variables_what_ours_gets_as_arguments():
    pod = worker(pools=[a_pool(template=TEMPLATE)])
    assert value(pod, "DASK_WORKER_NAME") == pod["metadata"]["annotations"]["gpudask.dev/dask-name"]
    assert value(pod, "DASK_SCHEDULER_ADDRESS") == addresses.scheduler_address("demo", "default", "tcp")
    assert value(pod, "DASK_DISTRIBUTED__WORKER__RESOURCES") is None
    on_gpu = worker(pools=[a_pool("gpu", gpu={"count": 2}, template=TEMPLATE)])
    assert value(on_gpu, "DASK_DISTRIBUTED__WORKER__RESOURCES") == '{"GPU": 1.0}'
    preloads = value(scheduler(scheduler={"template": TEMPLATE}), "DASK_DISTRIBUTED__SCHEDULER__PRELOAD")
    assert json.loads(str(preloads)) == [of(scheduler())["args"][of(scheduler())["args"].index("--preload") + 1]]


def test_a_variable_that_is_there_stays_and_our_own_command_gets_none():
    pod = worker(pools=[a_pool(template=TEMPLATE, env=[{"name": "DASK_WORKER_NAME", "value": "mine"}])])
    assert value(pod, "DASK_WORKER_NAME") == "mine"
    wrapped = {"spec": {"containers": [{"name": "dask", "command": ["conda", "run"]}]}}
    for made in (worker(), worker(pools=[a_pool(template=wrapped)]), scheduler()):
        assert not {item["name"] for item in of(made)["env"]} & {
            "DASK_WORKER_NAME",
            "DASK_SCHEDULER_ADDRESS",
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD",
        }
