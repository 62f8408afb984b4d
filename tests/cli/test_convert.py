"""Manifests of the stock operator as ours: whole ones, then one field each."""

from gpudask.api import Json

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask.api.resource import parse
from gpudask.api.spec import Spec
from gpudask.cli.commands.convert import merge_templates
from gpudask.stock.conversion import NotConvertibleError, convert
from gpudask.stock.notes import Kind, Notes
from gpudask.cli.commands.render import objects

STOCK = Path(__file__).parent / "stock"
API = "kubernetes.dask.org/v1"


def a_pod(*args: str, **container: Any) -> Json:
    resources = {"limits": {"cpu": "2", "memory": "4Gi"}}
    main = {"name": "main", "image": "dask:1", "args": list(args), "resources": resources} | container
    return {"spec": {"containers": [main], "securityContext": {"runAsUser": 1000}}}


def a_dask_cluster(worker: Json | None = None, **fields: Any) -> Json:
    spec = {"worker": {"replicas": 2, **(worker or a_pod("dask", "worker"))}, "scheduler": a_pod("dask", "scheduler")}
    return {"apiVersion": API, "kind": "DaskCluster", "metadata": {"name": "lab"}, "spec": spec | fields}


def a_group(name: str, worker: Json, cluster: str = "lab") -> Json:
    spec = {"cluster": cluster, "worker": {"replicas": 1, **worker}}
    return {"apiVersion": API, "kind": "DaskWorkerGroup", "metadata": {"name": name}, "spec": spec}


def an_autoscaler(**spec: Any) -> Json:
    return {"apiVersion": API, "kind": "DaskAutoscaler", "metadata": {"name": "lab"}, "spec": {"cluster": "lab"} | spec}


def converted(*documents: Json) -> tuple[Json, Notes]:
    notes = Notes()
    [made] = convert(list(documents), notes)
    return made["spec"], notes


def counted(notes: Notes) -> list[str]:
    return [f"{note.kind}: {note.path}" for note in notes.counted]


def load(name: str) -> list[Json]:
    return list(yaml.safe_load_all((STOCK / f"{name}.yaml").read_text()))


@pytest.mark.parametrize("name", [path.stem for path in STOCK.glob("*.yaml")])
def test_a_whole_manifest_becomes_one_that_is_valid_and_can_be_rendered(name: str):
    [made] = convert(load(name), Notes())

    cluster = parse({**made, "metadata": {"namespace": "default", "uid": "uid"} | made["metadata"]})
    known = set(Spec.model_json_schema(by_alias=True)["properties"])

    assert set(made["spec"]) <= known
    assert [item["kind"] for item in objects(cluster, {})].count("Pod") > 1


def test_the_documented_cluster_keeps_its_images_sizes_and_service():
    [made] = convert(load("simple"), Notes())
    spec = made["spec"]

    assert spec["image"] == "ghcr.io/dask/dask:latest"
    assert spec["scheduler"]["service"] == {"type": "NodePort"}
    assert [(pool["name"], pool["replicas"]) for pool in spec["pools"]] == [("default", 2)]
    assert spec["pools"][0]["extraArgs"] == ["--dashboard-address", "8788"]


def test_groups_become_pools_and_the_autoscaler_sizes_the_default_one():
    notes = Notes()
    [made] = convert(load("groups"), notes)
    default, gpu = made["spec"]["pools"]

    assert default["autoscale"] == {"min": 1, "max": 10}
    assert "replicas" not in default
    assert (default["nthreads"], default["resources"]["memory"]) == (4, "8Gi")
    assert gpu["gpu"] == {"count": 1, "nodeSelector": {"accelerator": "a100"}}
    assert (gpu["name"], gpu["image"], gpu["replicas"]) == ("gpuworkers", "registry.example/dask-gpu:1", 2)
    assert made["spec"]["scheduler"]["image"] == "registry.example/scheduler:1"
    assert made["metadata"] == {"name": "lab", "namespace": "team", "labels": {"owner": "alice"}}
    assert made["spec"]["idle"] == {"deleteAfter": "3600s"}
    assert counted(notes) == ["assumed: metadata.name"]


def test_nothing_is_said_of_what_was_carried_over_whole():
    _, notes = converted(a_dask_cluster())

    assert notes.items == []


@pytest.mark.parametrize(
    ("limits", "command", "expected"),
    [
        ({"nvidia.com/gpu": 2}, ["dask-cuda-worker"], {"count": 2, "nodeSelector": {}}),
        ({"nvidia.com/gpu": "1"}, ["dask", "worker"], {"count": 1, "nodeSelector": {}, "launcher": "dask"}),
        (
            {"nvidia.com/mig-1g.5gb": 1},
            ["dask", "cuda", "worker"],
            {"count": 1, "resourceName": "nvidia.com/mig-1g.5gb", "nodeSelector": {}},
        ),
        (
            {"amd.com/gpu": 1},
            ["dask-worker"],
            {"count": 1, "resourceName": "amd.com/gpu", "nodeSelector": {}, "launcher": "dask"},
        ),
    ],
)
def test_a_gpu_group_is_known_by_its_limits(limits: Json, command: list[str], expected: Json):
    resources = {"limits": {"cpu": 1, "memory": "4Gi"} | limits}
    spec, _ = converted(a_dask_cluster(), a_group("lab-gpu", a_pod(*command, resources=resources)))

    assert spec["pools"][1]["gpu"] == expected
    assert spec["pools"][1]["accepts"] == "any"


def test_a_scheduler_gets_no_gpu_which_is_said_and_keeps_its_nodes():
    scheduler = a_pod("dask", "scheduler", resources={"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}})
    scheduler["spec"]["nodeSelector"] = {"zone": "a"}
    spec, notes = converted(a_dask_cluster(scheduler=scheduler))

    assert spec["scheduler"]["resources"] == {"memory": "4Gi"}
    assert spec["scheduler"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
    assert counted(notes) == [f"{Kind.LOST}: spec.scheduler.spec.containers[0].resources.limits"]


def test_a_gpu_group_whose_tasks_are_annotated_takes_them_alone():
    worker = a_pod(
        "dask-cuda-worker", "--resources", "GPU=1", resources={"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}}
    )
    spec, _ = converted(a_dask_cluster(), a_group("lab-gpu", worker))

    assert spec["pools"][1]["offers"] == {"GPU": "1"}
    assert "accepts" not in spec["pools"][1]


@pytest.mark.parametrize(
    ("resources", "expected", "in_template"),
    [
        ({"limits": {"cpu": 4, "memory": "8Gi"}}, {"cpu": 4, "memory": "8Gi"}, {"limits": {"cpu": 4}}),
        (
            {"requests": {"memory": "2Gi"}, "limits": {"cpu": 1, "memory": "8Gi"}},
            {"cpu": 1, "memory": "8Gi"},
            {"limits": {"cpu": 1}, "requests": {"memory": "2Gi"}},
        ),
        (
            {"requests": {"cpu": 2, "memory": "8Gi"}, "limits": {"cpu": 2, "memory": "8Gi"}},
            {"cpu": 2, "memory": "8Gi"},
            {"limits": {"cpu": 2}},
        ),
    ],
)
def test_requests_and_limits_stay_what_they_are(resources: Json, expected: Json, in_template: Json):
    spec, notes = converted(a_dask_cluster(a_pod("dask", "worker", resources=resources)))
    [container] = spec["pools"][0]["template"]["spec"]["containers"]

    assert spec["pools"][0]["resources"] == expected
    assert container["resources"] == in_template
    assert counted(notes) == []


@pytest.mark.parametrize("given", [{}, {"limits": {"nvidia.com/gpu": 1}}], ids=["none", "a GPU alone"])
def test_a_pod_that_asks_for_no_cpu_and_no_memory_asks_for_none(given: Json):
    """Else it may find no room where it did before, or be killed for memory that nothing limited."""
    scheduler = a_pod("dask", "scheduler", resources={})
    spec, _ = converted(a_dask_cluster(a_pod("dask", "worker", resources=given), scheduler=scheduler))
    made = parse({"metadata": {"name": "lab", "namespace": "n", "uid": "u"}, "spec": spec})
    [pool] = made.spec.pools

    assert pool.resources == {}
    assert pool.memory_per_worker is None
    assert made.spec.scheduler.resources == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"idleTimeout": 5}, "assumed: spec.idleTimeout"),
        (
            {"scheduler": a_pod("dask", "scheduler", "--port", "9000")},
            "not carried over: spec.scheduler.spec.containers[0].args",
        ),
        (
            {"scheduler": {**a_pod("dask", "scheduler"), "service": {"loadBalancerIP": "1.2.3.4"}}},
            "not carried over: spec.scheduler.service.loadBalancerIP",
        ),
        (
            {"worker": a_pod("dask", "worker", "--nworkers", "4")},
            "not carried over: spec.worker.spec.containers[0].args",
        ),
        (
            {"worker": a_pod("dask", "worker", "--memory-limit", "2GB")},
            "not carried over: spec.worker.spec.containers[0].args",
        ),
        ({"worker": a_pod("sh", "-c", "start")}, "assumed: spec.worker.spec.containers[0].args"),
        ({"worker": a_pod("tini", "--", "dask", "worker")}, "not carried over: spec.worker.spec.containers[0].args"),
        (
            {"worker": a_pod("dask", "cuda", "worker")},
            "not carried over: spec.worker.spec.containers[0].resources.limits",
        ),
        (
            {"worker": a_pod("dask", "worker", env=[{"name": "GPUDASK_X", "value": "1"}])},
            "not carried over: spec.worker.spec.containers[0].env[GPUDASK_X]",
        ),
        (
            {"worker": a_pod("dask", "worker", "--nthreads", "1", resources={})},
            "assumed: spec.worker.spec.containers[0].resources.limits.memory",
        ),
        (
            {"worker": a_pod("dask", "worker", "--nthreads", "1", resources={"requests": {"memory": "1Gi"}})},
            "assumed: spec.worker.spec.containers[0].resources.limits.memory",
        ),
        ({"worker": {**a_pod("dask", "worker"), "replicas": 9000}}, "not carried over: spec.worker.replicas"),
        (
            {"worker": a_pod("dask", "scheduler")},
            "not carried over: spec.worker.spec.containers[0].args",
        ),
        (
            {"scheduler": {**a_pod("dask", "scheduler"), "service": {"ports": [{"name": "x", "port": 9000}]}}},
            "not carried over: spec.scheduler.service.ports",
        ),
        (
            {"scheduler": {**a_pod("dask", "scheduler"), "service": {"ports": [{"port": 8786, "nodePort": 30001}]}}},
            "not carried over: spec.scheduler.service.ports",
        ),
        (
            {"worker": a_pod("dask", "worker", "--nthreads", "1", env=[{"name": "A", "value": 3}])},
            "assumed: spec.worker.spec.containers[0].env[A]",
        ),
        (
            {
                "worker": a_pod(
                    "dask",
                    "worker",
                    resources={"requests": {"ephemeral-storage": "1Gi"}, "limits": {"cpu": 2, "memory": "4Gi"}},
                )
            },
            "assumed: spec.worker.spec.containers[0].resources.limits.ephemeral-storage",
        ),
        (
            {
                "worker": a_pod(
                    "dask",
                    "worker",
                    resources={"limits": {"cpu": 1, "memory": "4Gi", "nvidia.com/gpu": 1, "amd.com/gpu": 1}},
                )
            },
            "not carried over: spec.worker.spec.containers[0].resources.limits",
        ),
        ({"nonsense": 1}, "not carried over: spec.nonsense"),
        ({"worker": a_pod("dask", "worker") | {"nonsense": 1}}, "not carried over: spec.worker.nonsense"),
    ],
)
def test_what_has_no_counterpart_is_named_by_its_field(change: Json, said: str):
    _, notes = converted(a_dask_cluster(**change))

    assert counted(notes) == [said]


def test_a_restart_policy_and_a_second_container_are_seen():
    worker = a_pod("dask", "worker")
    worker["spec"] |= {"restartPolicy": "Never"}
    worker["spec"]["containers"].append({"name": "dask", "image": "sidecar:1"})
    spec, notes = converted(a_dask_cluster(worker))

    assert counted(notes) == [
        "assumed: spec.worker.spec.containers[dask]",
        "not carried over: spec.worker.spec.restartPolicy",
    ]
    assert [c["name"] for c in spec["pools"][0]["template"]["spec"]["containers"]] == ["dask", "dask-sidecar"]


def test_what_all_pods_have_is_said_once():
    pull = [{"name": "registry"}]
    env = [{"name": "TEAM", "value": "a"}]
    worker = a_pod("dask", "worker", env=env, imagePullPolicy="Always")
    scheduler = a_pod("dask", "scheduler", env=env, imagePullPolicy="Always")
    for pod in (worker, scheduler):
        pod["spec"]["imagePullSecrets"] = pull
    spec, _ = converted(a_dask_cluster(worker, scheduler=scheduler))

    assert (spec["env"], spec["imagePullPolicy"], spec["imagePullSecrets"]) == (env, "Always", pull)
    assert "env" not in spec["pools"][0]


def test_what_only_one_pod_has_stays_there():
    worker = a_pod("dask", "worker", imagePullPolicy="Always")
    spec, _ = converted(a_dask_cluster(worker))

    assert "imagePullPolicy" not in spec
    assert spec["pools"][0]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"


def test_a_pod_that_may_run_as_root_still_may():
    worker = a_pod("dask", "worker")
    del worker["spec"]["securityContext"]
    spec, notes = converted(a_dask_cluster(worker))

    assert spec["pools"][0]["template"]["spec"]["securityContext"] == {"runAsNonRoot": False}
    assert [note.kind for note in notes.items] == [Kind.HINT]


def test_a_pod_that_runs_as_root_by_name_still_may():
    worker = a_pod("dask", "worker", securityContext={"runAsUser": 0})
    del worker["spec"]["securityContext"]
    spec, _ = converted(a_dask_cluster(worker))

    assert spec["pools"][0]["template"]["spec"]["securityContext"] == {"runAsNonRoot": False}


def test_a_template_that_cannot_be_merged_is_refused():
    worker = a_pod("dask", "worker")
    worker["spec"]["volumes"] = [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]

    with pytest.raises(NotConvertibleError, match="stands there twice: remove one"):
        convert([a_dask_cluster(worker)], Notes(), check=merge_templates)


@pytest.mark.parametrize(
    ("name", "pool"),
    [("lab-gpu", "gpu"), ("lab-GPU-2", "gpu2"), ("other", "other"), ("lab-7", "p7"), ("lab-scheduler", "schedulers")],
)
def test_a_groups_name_becomes_a_pools(name: str, pool: str):
    spec, _ = converted(a_dask_cluster(), a_group(name, a_pod("dask", "worker")))

    assert spec["pools"][1]["name"] == pool


@pytest.mark.parametrize(
    ("args", "cpu", "nthreads", "noted"),
    [
        ([], {"requests": {"cpu": 1}, "limits": {"cpu": "3500m"}}, 4, []),
        ([], {"requests": {"cpu": 4}, "limits": {"cpu": 4}}, None, []),
        (["--nthreads", "2"], {"requests": {"cpu": 1}, "limits": {"cpu": 4}}, 2, []),
        ([], {"requests": {"cpu": 4}}, None, ["assumed: spec.worker.spec.containers[0].args"]),
    ],
)
def test_a_worker_has_the_threads_that_it_had(args: list[str], cpu: Json, nthreads: int | None, noted: list[str]):
    resources = {"requests": cpu["requests"], "limits": {"memory": "4Gi"} | cpu.get("limits", {})}
    spec, notes = converted(a_dask_cluster(a_pod("dask", "worker", *args, resources=resources)))

    assert spec["pools"][0].get("nthreads") == nthreads
    assert counted(notes) == noted


def test_a_groups_own_labels_are_its_pods_too():
    group = a_group("lab-gpu", a_pod("dask", "worker") | {"metadata": {"labels": {"a": "inner"}}})
    group["metadata"]["labels"] = {"a": "outer", "b": "outer", "dask.org/cluster-name": "lab"}
    spec, _ = converted(a_dask_cluster(), group)

    assert spec["pools"][1]["template"]["metadata"] == {"labels": {"a": "inner", "b": "outer"}}


def test_device_claims_are_kept_in_the_template():
    worker = a_pod("dask", "worker", resources={"limits": {"cpu": 1, "memory": "4Gi"}, "claims": [{"name": "gpu"}]})
    spec, _ = converted(a_dask_cluster(worker))

    assert spec["pools"][0]["template"]["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]


def test_two_groups_never_become_one_pool():
    worker = a_pod("dask", "worker")
    spec, _ = converted(a_dask_cluster(), a_group("lab-a-b", worker), a_group("lab-ab", deepcopy(worker)))

    assert [pool["name"] for pool in spec["pools"]] == ["default", "ab", "ab2"]


def test_the_default_group_of_a_running_cluster_is_no_second_pool():
    spec, _ = converted(a_dask_cluster(), a_group("lab-default", a_pod("dask", "worker")))

    assert [(pool["name"], pool["replicas"]) for pool in spec["pools"]] == [("default", 1)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"minimum": 0, "maximum": 5}, {"min": 0, "max": 5}),
        ({"minimum": 2, "maximum": 1}, {"min": 2, "max": 2}),
        ({"minimum": 1}, {"min": 1, "max": 5000}),
        ({"minimum": 0, "maximum": 0}, {"min": 0, "max": 1}),
    ],
)
def test_an_autoscalers_limits(limits: Json, expected: Json):
    spec, _ = converted(a_dask_cluster(), an_autoscaler(**limits))

    assert spec["pools"][0]["autoscale"] == expected


def test_parts_of_other_clusters_and_other_kinds_are_named():
    other = a_group("x-gpu", a_pod("dask", "worker"), cluster="x")
    job = {"apiVersion": API, "kind": "DaskJob", "metadata": {"name": "j"}, "spec": {}}
    spec, notes = converted(a_dask_cluster(), other, job)

    assert len(spec["pools"]) == 1
    assert [str(note) for note in notes.items] == [
        "not carried over: DaskWorkerGroup x-gpu: spec.cluster: no DaskCluster 'x' is given",
        "not carried over: DaskJob j: kind: only DaskCluster, DaskWorkerGroup and DaskAutoscaler are converted",
    ]


def test_one_protocol_and_one_autoscaler_hold_and_the_others_are_named():
    tls = a_group("lab-tls", a_pod("dask", "worker", "--protocol", "tls"))
    worker = a_pod("dask", "worker", "--protocol", "ucxx")
    spec, notes = converted(a_dask_cluster(worker), tls, an_autoscaler(maximum=3), an_autoscaler(maximum=4))

    assert (spec["protocol"], spec["pools"][0]["autoscale"]["max"]) == ("tls", 3)
    assert [str(note) for note in notes.counted] == [
        "not carried over: DaskCluster lab: args: --protocol ucxx: one protocol for the cluster, tls",
        "not carried over: DaskAutoscaler lab: spec.cluster: one autoscaler a cluster: the first one holds",
    ]


def test_a_name_that_our_rules_refuse_is_changed_and_said():
    cluster = a_dask_cluster()
    cluster["metadata"]["name"] = "Lab_1"
    notes = Notes()
    [made] = convert([cluster], notes)

    assert made["metadata"]["name"] == "lab-1"
    assert counted(notes) == ["assumed: metadata.name"]


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"args": "dask worker"}, r"args: expected a list"),
        ({"args": ["dask", "worker", "--nthreads", 4]}, r"args\[3\]: expected a string: put the value in quotes"),
        ({"env": {"A": "b"}}, r"env: expected a list"),
        ({"env": [{"value": "b"}]}, r"env\[0\].name: required, but missing"),
        ({"resources": {"limits": 3}}, r"resources.limits: expected an object"),
        (
            {"resources": {"limits": {"nvidia.com/gpu": "two"}}},
            r"resources.limits.nvidia.com/gpu: 'two' is not a number",
        ),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_path(container: Json, said: str):
    worker = a_pod("dask", "worker")
    worker["spec"]["containers"][0] |= container
    with pytest.raises(NotConvertibleError, match=rf"DaskCluster lab: spec.worker.spec.containers\[0\].{said}"):
        convert([a_dask_cluster(worker)], Notes())


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"kind": "DaskCluster", "spec": {}}, r"DaskCluster \?: metadata: required, but missing"),
        ({"kind": "DaskWorkerGroup", "metadata": {}, "spec": {"cluster": "lab"}}, r"\?: metadata.name: required"),
        ({"kind": "DaskAutoscaler", "metadata": {"name": "lab"}}, r"DaskAutoscaler lab: spec: required, but missing"),
        (an_autoscaler(minimum="a"), r"DaskAutoscaler lab: spec.minimum: should be a valid integer"),
    ],
)
def test_a_part_without_what_it_needs_is_refused_by_its_field(part: Json, said: str):
    with pytest.raises(NotConvertibleError, match=said):
        convert([a_dask_cluster(), {"apiVersion": API, **part}], Notes())


def test_several_clusters_become_several():
    other = deepcopy(a_dask_cluster())
    other["metadata"]["name"] = "second"

    assert [body["metadata"]["name"] for body in convert([a_dask_cluster(), other], Notes())] == ["lab", "second"]


def test_input_without_a_cluster_says_what_it_has():
    with pytest.raises(NotConvertibleError, match="which has: DaskAutoscaler"):
        convert([an_autoscaler(minimum=1, maximum=2)], Notes())


def test_a_pod_without_an_image_is_refused_by_its_field():
    with pytest.raises(NotConvertibleError, match=r"DaskCluster lab: spec.scheduler.spec.containers: a container"):
        convert([a_dask_cluster(scheduler={"spec": {"containers": []}})], Notes())


def test_what_breaks_a_rule_is_refused_with_the_rules_words():
    worker = a_pod("dask", "worker", *(f"--flag{number}" for number in range(40)))
    with pytest.raises(NotConvertibleError, match=r"spec.pools\[0\].extraArgs"):
        convert([a_dask_cluster(worker)], Notes())


@pytest.mark.parametrize(
    ("container", "kept"),
    [
        ({"command": ["conda", "run", "-n", "mine", "dask", "worker"]}, {"command": ["conda", "run", "-n", "mine"]}),
        ({"command": ["tini", "--"], "args": ["dask-worker"]}, {"command": ["tini", "--"]}),
        ({"command": ["tini"], "args": ["--", "dask-worker"]}, {"command": ["tini", "--"]}),
        ({"command": ["dask"], "args": ["worker"]}, {}),
        ({"args": ["dask", "worker"]}, {}),
        ({}, {}),
    ],
)
def test_what_starts_a_dask_command_starts_ours(container: Json, kept: Json):
    spec, notes = converted(a_dask_cluster({"spec": {"containers": [{"image": "dask:1", **container}]}}))
    assert own_command(spec["pools"][0]) == kept
    assert not [note for note in notes.lost_ones if "args" in note.path]


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["dask-wroker", "--name", "a"]},
        {"command": ["/start.sh"]},
        {"command": ["bash", "-c"], "args": ["pip install more; exec dask-worker"]},
        {"command": ["bash", "-c", "dask-worker", "--nthreads", "4"]},
    ],
)
def test_a_command_that_is_none_of_dasks_is_started_as_it_is(container: Json):
    spec, notes = converted(a_dask_cluster({"spec": {"containers": [{"image": "dask:1", **container}]}}))
    assert own_command(spec["pools"][0]) == {"args": [], **container}
    assert "assumed: spec.worker.spec.containers[0].args" in counted(notes)


def own_command(pool: Json) -> Json:
    containers = pool.get("template", {}).get("spec", {}).get("containers", [{}])
    return {key: containers[0][key] for key in ("command", "args") if key in containers[0]}
