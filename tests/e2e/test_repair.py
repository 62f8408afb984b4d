"""What breaks comes back: pods, Services, the operator, the API server; and what is deleted goes."""

from __future__ import annotations

import json

import pytest
from distributed.client import FutureCancelledError
from gpudask_e2e import ends, processing_on, record, release, wait_for_release, work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.pod_history import PodHistory
from tests.e2e.space import Space
from tests.eventually import eventually, steadily

GPU = {"GPU": 1}


def test_a_pod_deleted_by_hand_returns(space: Space) -> None:
    space.apply(cluster("hand", cpu(replicas=2)))
    space.wait_workers("hand", "cpu", 2)
    before = {pod["metadata"]["uid"] for pod in space.pods("hand", "cpu")}
    space.kubectl("delete", "pod", "hand-cpu-worker-0", "--wait=false")
    space.wait(
        lambda: (
            len({pod["metadata"]["uid"] for pod in space.pods("hand", "cpu")} - before) == 1
            and len(space.pods("hand", "cpu")) == 2
        ),
        "another pod took its place",
    )
    space.wait_workers("hand", "cpu", 2)


def test_a_deleted_scheduler_returns_and_the_workers_find_it(space: Space) -> None:
    space.apply(cluster("head", cpu(replicas=2)))
    space.wait_workers("head", "cpu", 2)
    (old,), before = space.names("head"), space.uids("head")
    space.kubectl("delete", "pod", old, "--wait=false")
    space.wait(lambda: space.uids("head") and not space.uids("head") & before, "another scheduler pod")
    space.wait_workers("head", "cpu", 2)
    with space.client("head") as client:
        assert client.submit(work, 1).result(timeout=60) == 1


def test_a_worker_makes_room_for_the_next_scheduler_where_the_quota_was_lowered(space: Space) -> None:
    space.apply(cluster("tight", cpu(replicas=1)))
    space.wait_workers("tight", "cpu", 1)
    space.limit("few", {"pods": "1"})
    (scheduler,), old = space.names("tight"), space.uids("tight")
    space.kubectl("delete", "pod", scheduler, "--wait=false")
    space.wait(lambda: not space.names("tight", "cpu"), "the worker has made room", seconds=120)
    space.wait(lambda: space.uids("tight") - old, "the next scheduler has its place", seconds=120)
    space.limit("few", {"pods": "2"})
    space.wait_workers("tight", "cpu", 1, seconds=120)


@pytest.mark.local_cluster("it ends a container's process as a crash does")
def test_autoscaled_workers_stay_when_the_scheduler_process_ends_and_serve_the_next_one(space: Space) -> None:
    patient = gpu(autoscale={"min": 0, "max": 2, "targetDuration": "1s", "idleTimeout": "40s"})
    space.apply(cluster("again", cpu(), patient))
    space.wait_ready("again")
    (head,) = space.pods("again")
    with PodHistory(space.kubectl) as pods:
        with space.client("again") as client:
            tasks = client.map(work, range(500), seconds=0.2, resources=GPU, pure=False)
            space.wait_workers("again", "gpu", 2)
            space.platform.kill(head)
            with pytest.raises(FutureCancelledError, match="re-run your work"):
                tasks[-1].result(timeout=60)
            space.wait(  # before the client is closed, which takes as long as the scheduler may be away
                lambda: (
                    space.condition("again", "SchedulerReady")["status"] == "False"
                    and space.pool("again", "gpu")["reason"] == "the demand is not known: the size stays"
                ),
                "the status says why nothing is decided",
            )
            del tasks
        assert space.pool("again", "gpu")["desired"] == 2
        space.wait_ready("again")
        space.wait_workers("again", "gpu", 2)
        assert space.status("again")["scheduler"]["lost"].endswith(" tasks"), "the status says that results are lost"
        space.wait(lambda: "SchedulerRestarted" in space.events(), "an event says so, too")
        with space.client("again") as client:
            assert client.gather(client.map(work, range(20), seconds=0.2, resources=GPU)) == list(range(20))
        pods.settle()
        assert pods.asked_to_end("gpu") == set(), pods
        assert len(pods.made("gpu")) == 2, pods


@pytest.mark.local_cluster("it ends a container's process as a crash does")
def test_a_scheduler_process_that_ends_during_a_drain_costs_no_pod_but_the_one_that_leaves(space: Space) -> None:
    space.apply(cluster("amid", cpu(), gpu(replicas=2)))
    space.wait_workers("amid", "gpu", 2)
    (head,) = space.pods("amid")
    with PodHistory(space.kubectl) as pods:
        with space.client("amid") as client:
            tasks = client.map(work, range(4), seconds=5.0, resources=GPU, pure=False)
            space.wait(lambda: sum(map(bool, client.run_on_scheduler(processing_on).values())) == 2, "both work")
            space.edit("amid", {"op": "add", "path": "/spec/overrides", "value": [{"pool": "gpu", "replicas": 1}]})
            (leaving,) = space.wait(lambda: space.retiring("amid", "gpu"), "one retires")
            space.platform.kill(head)
            space.wait(lambda: space.condition("amid", "SchedulerReady")["status"] == "False", "the status says so")
            del tasks
        space.wait_ready("amid")
        space.wait_pods("amid", "gpu", 1)
        space.wait_workers("amid", "gpu", 1)
        with space.client("amid") as client:
            assert client.submit(work, 3, resources=GPU).result(timeout=60) == 3
        pods.settle()
        assert pods.asked_to_end("gpu") == {leaving}, pods
        assert pods.asked_to_end("cpu") == pods.asked_to_end("") == set(), pods
    assert space.pods("amid")[0]["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_service_that_was_edited_or_deleted_is_put_right(space: Space) -> None:
    space.apply(cluster("drift", cpu()))
    space.wait_ready("drift")
    patch = {"metadata": {"labels": {"mine": "kept"}}, "spec": {"selector": {"dask.org/component": "nobody"}}}
    space.kubectl("patch", "service", "drift-scheduler", "-p", json.dumps(patch))

    def service() -> dict[str, dict[str, str]]:
        body = space.find("services", "drift-scheduler")
        return {"selector": body["spec"]["selector"], "labels": body["metadata"]["labels"]}

    space.wait(lambda: service()["selector"]["dask.org/component"] == "scheduler", "its selector is ours again")
    assert service()["labels"]["mine"] == "kept", "a label that is not ours was taken away"
    space.kubectl("delete", "service", "drift-scheduler")
    space.wait(lambda: space.get("services", fields="metadata.name=drift-scheduler"), "the Service is back")


@pytest.mark.alone  # it ends the operator
@pytest.mark.local_cluster("it ends the operator's process as a crash does")
def test_an_operator_killed_while_it_scales_up_ends_in_the_same_state_without_a_pod_too_many(space: Space) -> None:
    space.apply(cluster("kill1", cpu(), gpu()))
    space.wait_ready("kill1")
    with PodHistory(space.kubectl) as pods, space.client("kill1") as client:
        record(client)
        # Of unknown duration: the pool doubles as its workers come, 1, 2, 4, and has seconds between.
        tasks = client.map(wait_for_release, range(8), resources=GPU, pure=False)
        space.wait(lambda: len(space.names("kill1", "gpu")) >= 2, "the pool grew past one pod")
        space.platform.kill_operator()
        space.wait_workers("kill1", "gpu", 4)
        client.run(release)
        assert sorted(client.gather(tasks)) == list(range(8))
        executions = ends(client, [task.key for task in tasks])
        assert {len(workers) for workers in executions.values()} == {1}, executions
        del tasks
        space.wait_pods("kill1", "gpu", 0)
        pods.settle()
        assert pods.most("gpu") == 4, pods
        assert pods.made("gpu") == [f"kill1-gpu-worker-{n}" for n in range(4)], pods


@pytest.mark.alone  # it ends the operator
@pytest.mark.local_cluster("it ends the operator's process as a crash does")
def test_an_operator_killed_during_a_drain_goes_on_with_it(space: Space) -> None:
    space.apply(cluster("kill2", cpu(), gpu(replicas=2)))
    space.wait_workers("kill2", "gpu", 2)
    with space.client("kill2") as client:
        record(client)
        tasks = client.map(wait_for_release, range(4), resources=GPU, pure=False)
        space.wait(lambda: sum(1 for n in client.run_on_scheduler(processing_on).values() if n) == 2, "both work")
        space.edit("kill2", {"op": "add", "path": "/spec/overrides", "value": [{"pool": "gpu", "replicas": 1}]})
        (leaving,) = space.wait(lambda: space.retiring("kill2", "gpu"), "one retires")
        space.platform.kill_operator()
        client.run(release)
        space.wait_pods("kill2", "gpu", 1)
        assert leaving not in space.names("kill2", "gpu")
        assert sorted(client.gather(tasks)) == list(range(4))
        executions = ends(client, [task.key for task in tasks])
        assert {len(workers) for workers in executions.values()} == {1}, executions


@pytest.mark.alone  # it takes the operator away
def test_an_operator_that_was_away_catches_up_and_deletion_needs_none(space: Space) -> None:
    space.apply(cluster("stays", cpu(replicas=2)))
    space.apply(cluster("goes", cpu()))
    space.wait_workers("stays", "cpu", 2)
    space.wait_ready("goes")
    replicas = space.platform.scale_operator(0)
    try:
        space.kubectl("delete", "gdc", "goes", "--timeout=120s")
        mine = "gpudask.dev/cluster=goes"
        eventually(
            lambda: not any(space.get(kind, labels=mine) for kind in ("pods", "services", "configmaps", "secrets")),
            "everything of the deleted cluster is gone without an operator",
            show=space.show,
        )
        space.edit("stays", {"op": "replace", "path": "/spec/pools/0/replicas", "value": 1})
        space.kubectl("delete", "pod", *space.names("stays"), "--wait=true")
    finally:
        space.platform.scale_operator(replicas)
    space.wait_workers("stays", "cpu", 1)
    space.wait_pods("stays", "cpu", 1)
    assert len(space.names("stays")) == 1


@pytest.mark.alone  # it restarts the API server
@pytest.mark.local_cluster("it restarts the API server")
def test_the_api_server_restarts_while_one_pool_grows_and_another_drains(space: Space) -> None:
    space.apply(cluster("api", cpu(replicas=2), gpu()))
    space.wait_workers("api", "cpu", 2)
    with PodHistory(space.kubectl) as pods, space.client("api") as client:
        record(client)
        plain = client.map(wait_for_release, range(4), pure=False)
        space.wait(lambda: sum(map(bool, client.run_on_scheduler(processing_on).values())) == 2, "both work")
        tasks = client.map(wait_for_release, range(8), resources=GPU, pure=False)
        space.edit("api", {"op": "add", "path": "/spec/overrides", "value": [{"pool": "cpu", "replicas": 1}]})
        space.wait(lambda: space.pool("api", "cpu")["retiring"] == 1, "one retires")
        space.wait(lambda: len(space.names("api", "gpu")) >= 2, "the GPU pool grew past one pod")
        before = space.containers()
        space.platform.cluster.restart("kube-apiserver")
        space.wait_workers("api", "gpu", 4)
        assert len(space.names("api", "cpu")) == 2, "the drain did not wait for the tasks"
        assert space.containers().items() >= before.items(), "a container was restarted"
        client.run(release)
        space.wait_pods("api", "cpu", 1)
        assert sorted(client.gather(plain)) == list(range(4))
        assert sorted(client.gather(tasks)) == list(range(8))
        executions = ends(client, [task.key for task in [*plain, *tasks]])
        assert {len(workers) for workers in executions.values()} == {1}, executions
        del plain, tasks
        space.wait_pods("api", "gpu", 0)
        pods.settle()
        assert pods.most("gpu") == 4, pods
        assert pods.made("gpu") == [f"api-gpu-worker-{n}" for n in range(4)], pods
        assert len(pods.made("cpu")) == 2, pods


def test_clusters_whose_names_could_collide_leave_each_others_pods_alone(space: Space) -> None:
    """`a` with pool `b`, and `a-b`: their pods are `a-b-worker-<n>` and `a-b-<pool>-worker-<n>`."""
    for name, pool in (("a", "b"), ("a-b", "worker"), ("a-b-worker", "b")):
        space.apply(cluster(name, {"name": pool, "nthreads": 1, "replicas": 1}))
    for name, pool in (("a", "b"), ("a-b", "worker"), ("a-b-worker", "b")):
        space.wait_workers(name, pool, 1)
    space.kubectl("delete", "gdc", "a-b", "--timeout=120s")
    space.wait(lambda: not space.pods("a-b", "worker"), "its own pods are gone")
    assert len(space.names("a", "b")) == 1
    assert len(space.names("a-b-worker", "b")) == 1
    steadily(lambda: bool(space.names("a", "b") and space.names("a-b-worker", "b")), "the others stay", seconds=2)
