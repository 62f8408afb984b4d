"""All participants run the same: the pods by hand are the operator's, but for their owner."""

from __future__ import annotations

from typing import Any, cast

from benchmarks.startup.peer import Peer
from benchmarks.startup.run import order
from benchmarks.startup.participants import Rendered, dask_name, manifest
from gpudask.api.resource import parse
from gpudask.desired.workers import worker_pod


def test_the_pods_by_hand_are_the_operators_without_an_owner() -> None:
    body = manifest("small", "room", 2)
    cluster = parse(body | {"metadata": body["metadata"] | {"uid": "any"}})
    theirs = worker_pod(cluster, cluster.spec.pools[0], 1, "hand0")
    del theirs["metadata"]["ownerReferences"]
    assert Rendered(body).cpu_worker(1) == theirs


def test_nothing_by_hand_has_an_owner_that_would_have_it_collected() -> None:
    rendered = Rendered(manifest("small", "room", 2))
    objects = [*rendered.base(), rendered.cpu_worker(0), rendered.gpu_worker()]
    assert [item["kind"] for item in objects] == ["Service", "ConfigMap", "ConfigMap", "Pod", "Pod", "Pod"]
    assert not [item for item in objects if "ownerReferences" in item["metadata"]]


def test_the_gpu_pool_begins_empty_and_keeps_its_pod_once_it_has_one() -> None:
    cpu, gpu = manifest("small", "room", 10)["spec"]["pools"]
    assert cpu["replicas"] == 10
    assert gpu["autoscale"] == {"min": 0, "max": 1, "idleTimeout": "1h"}


def test_workers_are_retired_by_the_name_that_they_register_under() -> None:
    pod = Rendered(manifest("small", "room", 2)).cpu_worker(7)
    assert dask_name(pod) in pod["spec"]["containers"][0]["args"]


def test_in_as_many_rounds_as_participants_each_is_first_once() -> None:
    titles = ["floor", "gpudask", "peer"]
    assert {order(titles, number)[0] for number in range(3)} == set(titles)
    assert all(sorted(order(titles, number)) == titles for number in range(7))
    assert order([], 3) == []


class PeerStandIn:
    """Echoes what it is asked for, as the peer's own function writes it into a manifest."""

    def cluster_spec(self, **asked: Any) -> dict[str, Any]:
        scheduler = {"args": ["dask-scheduler", "--host", "::"], "env": asked["env"]}
        return {
            "metadata": {"name": asked["name"]},
            "spec": {
                "worker": {"replicas": asked["n_workers"], "spec": {"args": asked["worker_command"].split()}},
                "scheduler": {
                    "spec": {"containers": [scheduler]},
                    "service": {"selector": {"dask.org/cluster-name": asked["name"]}},
                },
            },
        }


def test_the_peers_manifest_is_made_once_and_names_each_cluster_in_all_its_places() -> None:
    peer = Peer(cast("Any", None), "room", cast("Any", PeerStandIn()), cast("Any", None))
    peer.ask_for_a_manifest()
    body = peer.dask_cluster("small7", 10)
    assert body["metadata"] == {"name": "small7", "namespace": "room"}
    assert body["spec"]["worker"]["replicas"] == 10
    assert body["spec"]["worker"]["spec"]["args"][:3] == ["dask", "worker", "--no-nanny"]
    assert body["spec"]["scheduler"]["service"]["selector"] == {"dask.org/cluster-name": "small7"}
    assert body["spec"]["scheduler"]["spec"]["containers"][0]["args"] == ["dask", "scheduler", "--host", "::"]
    assert peer.dask_cluster("large7", 2)["metadata"]["name"] == "large7"
