"""DaskClusters as specs of GpuDaskClusters: tables, and that any document has an answer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec, make_worker_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.api.resource import MAX_SPEC_BYTES
from gpudask.api.spec import MAX_POOLS, Spec
from gpudask.stock import served as module
from gpudask.stock.notes import Kind
from gpudask.stock.served import UnservableError, merged_spec, pool_of_group, same_spec, serve, sizes

GPU = {"limits": {"nvidia.com/gpu": 2}}


def a_cluster(**options: Any) -> Json:
    body = copy.deepcopy(make_cluster_spec("demo", **{"image": "x", "n_workers": 2, **options}))
    return {"kind": "DaskCluster", "metadata": {"name": "demo", "namespace": "default"}, "spec": body["spec"]}


def a_group(name: str = "demo-more", **options: Any) -> Json:
    worker = copy.deepcopy(make_worker_spec(**{"image": "x", "n_workers": 1, **options}))
    metadata = {"name": name, "namespace": "default"}
    return {"kind": "DaskWorkerGroup", "metadata": metadata, "spec": {"cluster": "demo", "worker": worker}}


def pools(*groups: Json, **options: Any) -> dict[str, Json]:
    return {pool["name"]: pool for pool in serve(a_cluster(**options), groups).spec["pools"]}


def test_what_the_stock_client_makes_is_served_and_its_commands_are_told() -> None:
    served = serve(a_cluster(idle_timeout=60, scheduler_service_type="LoadBalancer"), [])
    assert served.spec["image"] == "x"
    assert served.spec["idle"] == {"deleteAfter": "60s"}
    assert served.spec["scheduler"]["service"] == {"type": "LoadBalancer"}
    assert [pool["name"] for pool in served.spec["pools"]] == ["default"]
    assert [note for note in served.notes if note.kind is Kind.LOST] == []
    assert served.replaced == (
        "spec.scheduler.spec.containers[0]: dask-scheduler is started as `dask scheduler`",
        "spec.worker.spec.containers[0]: dask-worker is started as `dask worker`",
    )
    assert serve(a_cluster(worker_command="dask worker"), []).replaced == served.replaced[:1]


@pytest.mark.parametrize(
    ("asked", "allowed", "made"),
    [
        ("NodePort", ("ClusterIP",), {}),
        ("LoadBalancer", ("ClusterIP", "NodePort"), {}),
        ("NodePort", ("ClusterIP", "NodePort"), {"type": "NodePort"}),
        ("NodePort", ("LoadBalancer",), {"type": "NodePort"}),  # it is refused, as its administrators wanted it
    ],
)
def test_a_service_that_is_not_allowed_is_a_cluster_ip_and_told(
    asked: str, allowed: tuple[str, ...], made: Json
) -> None:
    served = serve(a_cluster(scheduler_service_type=asked), [], allowed)
    assert served.spec["scheduler"]["service"] == made
    lost = [str(note) for note in served.notes if note.kind is Kind.LOST]
    assert len(lost) == (0 if made else 1)
    assert all(f"DaskCluster demo: spec.scheduler.service.type: {asked} is not allowed here" in line for line in lost)


@pytest.mark.parametrize(
    ("command", "launcher"),
    [("dask-cuda-worker", None), ("dask cuda worker", None), ("dask-worker", "dask"), ("/opt/bin/dask-worker", "dask")],
)
def test_a_group_whose_container_asks_for_gpus_is_a_gpu_pool(command: str, launcher: str | None) -> None:
    gpu = pools(a_group("demo-gpu", resources=GPU, worker_command=command))["gpu"]["gpu"]
    assert (gpu["count"], gpu.get("launcher")) == (2, launcher)


def test_the_gpus_that_workers_offer_are_the_pools_offer() -> None:
    command = "dask-cuda-worker --resources GPU=1"
    assert pools(a_group("demo-gpu", resources=GPU, worker_command=command))["gpu"]["offers"] == {"GPU": "1"}


@pytest.mark.parametrize(
    ("group", "pool"),
    [
        ("demo-gpu", "gpu"),
        ("demo-high-mem", "highmem"),
        ("demo-default", "default"),
        ("workers", "workers"),
        ("demo-scheduler", "schedulers"),
        ("demo-4gpu", "p4gpu"),
    ],
)
def test_the_pool_of_a_group(group: str, pool: str) -> None:
    assert pool_of_group("demo", group) == pool


def test_groups_with_long_names_that_begin_alike_are_two_pools() -> None:
    names = [pool_of_group("demo", f"demo-workers-large-gpu-{letter}") for letter in "ab"]
    assert len(set(names)) == 2
    assert all(len(name) <= 15 for name in names)


def test_two_groups_that_would_be_one_pool_are_told_apart() -> None:
    served = serve(a_cluster(), [a_group("demo-high-mem"), a_group("demo-highmem")])
    assert served.pools == {"demo-high-mem": "highmem"}
    assert served.refused["demo-highmem"].startswith("metadata.name: its pool would be called highmem")


def test_groups_beyond_the_pools_of_a_cluster_are_refused() -> None:
    served = serve(a_cluster(), [a_group(f"demo-g{n:02}") for n in range(MAX_POOLS + 3)])
    assert len(served.spec["pools"]) == MAX_POOLS
    assert len(served.refused) == 4


def test_a_group_that_cannot_be_read_is_left_out_alone() -> None:
    bad = a_group("demo-bad")
    bad["spec"]["worker"]["spec"]["containers"][0]["image"] = None
    served = serve(a_cluster(), [bad, a_group("demo-good")])
    assert served.pools == {"demo-good": "good"}
    assert served.refused["demo-bad"].startswith("spec.worker.spec.containers: a container with an image")


def test_without_a_size_there_is_one_worker_as_the_stock_definitions_have_it_by_default() -> None:
    assert pools(n_workers=None)["default"]["replicas"] == 1


def test_a_spec_without_end_is_refused_before_it_is_read() -> None:
    body = a_cluster()
    body["spec"]["scheduler"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x" * MAX_SPEC_BYTES}]
    with pytest.raises(UnservableError, match="larger than"):
        serve(body, [])


def test_sizes_of_pools_that_are_there_stay_and_so_does_what_stock_objects_do_not_say() -> None:
    served = serve(a_cluster(n_workers=5), [a_group("demo-new", n_workers=4)]).spec
    present = {
        "pools": [{"name": "default", "replicas": 2}, {"name": "gone", "replicas": 1}],
        "suspend": True,
        "idle": {"frozenFor": "30m", "deleteAfter": "1h"},
        "overrides": [{"pool": "default", "replicas": 3}],
    }
    merged = merged_spec(served, present)
    assert sizes(merged) == {"default": 2, "new": 4}
    assert merged["suspend"] is True
    assert merged["idle"] == {"frozenFor": "30m"}
    assert merged["overrides"] == present["overrides"]
    assert merged_spec(served, merged) == merged


def test_specs_are_the_same_where_one_has_its_defaults_written_out() -> None:
    spec = serve(a_cluster(), [a_group("demo-gpu", resources=GPU)]).spec
    written_out = Spec.model_validate(spec).model_dump(mode="json", by_alias=True, exclude_none=True)
    assert same_spec(spec, written_out)
    assert not same_spec(spec, {**written_out, "image": "y"})
    assert not same_spec(spec, {"pools": 5})


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within `node`."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, value in children for found in places(value, (*path, key)))]


_WHOLE = {"cluster": a_cluster(resources=GPU, env={"A": "b"}), "group": a_group(resources=GPU)}
_PLACES = [path for path in places(_WHOLE) if len(path) > 1 and path[1] == "spec"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_PLACES), _JUNK), min_size=1, max_size=3))
def test_whatever_a_tenant_writes_has_an_answer(spoiled: list[tuple[tuple[Any, ...], Any]]) -> None:
    whole = copy.deepcopy(_WHOLE)
    for path, junk in spoiled:
        node: Any = whole
        try:
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue  # an earlier one took its place away
    try:
        served = serve(whole["cluster"], [whole["group"]])
    except UnservableError:
        return
    assert Spec.model_validate(served.spec).pools
    assert set(served.pools) | set(served.refused) == {"demo-more"}
    assert same_spec(merged_spec(served.spec, served.spec), served.spec)


def test_the_pool_of_a_group_that_an_edit_spoiled_stays_as_it_was() -> None:
    good = serve(a_cluster(), [a_group("demo-a"), a_group("demo-b")])
    spoilt = a_group("demo-a")
    spoilt["spec"]["worker"]["spec"]["containers"] = []
    served = serve(a_cluster(), [spoilt, a_group("demo-b")])
    present = good.spec | {"overrides": [{"pool": "a", "replicas": 3, "by": "x"}]}
    merged = merged_spec(served.spec, present, served.kept)
    pools_by_name = {pool["name"]: pool for pool in merged["pools"]}
    assert pools_by_name["a"] == next(pool for pool in good.spec["pools"] if pool["name"] == "a")
    assert merged["overrides"] == present["overrides"]
    assert "spec.worker.spec.containers" in served.refused["demo-a"]
    gone = serve(a_cluster(), [a_group("demo-b")])
    assert [pool["name"] for pool in merged_spec(gone.spec, merged, gone.kept)["pools"]] == ["default", "b"]


def test_of_many_bad_groups_some_are_converted_and_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [a_group(f"demo-bad{n}") for n in range(10 * MAX_POOLS)]
    for group in bad:
        group["spec"]["worker"]["spec"]["containers"] = []
    looked_at = 0
    convert = module._converted

    def counted(documents: list[Json]) -> Any:
        nonlocal looked_at
        looked_at += 1
        return convert(documents)

    monkeypatch.setattr(module, "_converted", counted)
    served = serve(a_cluster(), bad)
    assert len(served.refused) == len(bad)
    assert looked_at <= MAX_POOLS + 2
    assert sum("not looked at" in why for why in served.refused.values()) == len(bad) - MAX_POOLS


def test_a_cluster_that_has_our_defaults_keeps_them_and_a_new_pool_asks_for_nothing() -> None:
    """Its pods would be replaced for it, which no new version of the operator does."""
    served = serve(a_cluster(), [a_group("demo-more")]).spec
    parts = [served["scheduler"], *served["pools"]]
    assert [part["resources"] for part in parts] == [{}, {}, {}]

    before = copy.deepcopy(served)
    before["pools"].pop()
    for part in (before["scheduler"], *before["pools"]):
        del part["resources"]
    merged = merged_spec(served, before)
    assert ["resources" in part for part in (merged["scheduler"], *merged["pools"])] == [False, False, True]
