"""Worker groups that follow demand by an annotation: what it may say, and which pool comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.api.pool import MAX_REPLICAS
from gpudask.api.resource import ANNOTATION_AUTOSCALE
from gpudask.api.spec import Spec
from gpudask.stock.autoscale import Limits, parse_limits, read_limits
from gpudask.stock.conversion import NotConvertibleError, convert
from gpudask.stock.job import serve_job
from gpudask.stock.notes import Notes
from gpudask.stock.served import UnservableError, merged_spec, own_limits, serve, sizes
from tests.stock.test_job import a_job
from tests.stock.test_served import GPU, a_cluster, a_group


def annotated(body: Json, text: str = "0..8") -> Json:
    return body | {"metadata": body["metadata"] | {"annotations": {ANNOTATION_AUTOSCALE: text, "team": "a"}}}


def gpu_group(text: str = "0..8", command: str = "dask-cuda-worker") -> Json:
    return annotated(a_group("demo-gpu", resources=GPU, worker_command=command), text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [("0..8", (0, 8)), (" 2 .. 2 ", (2, 2)), ("1..5000", (1, MAX_REPLICAS)), ("00..01", (0, 1))],
)
def test_limits(text: str, limits: tuple[int, int]) -> None:
    assert parse_limits(text) == Limits(*limits)
    assert parse_limits(str(parse_limits(text))) == Limits(*limits)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("8", 'such as "0..8"'),
        ("0-8", 'such as "0..8"'),
        ("", 'such as "0..8"'),
        ("-1..8", 'such as "0..8"'),
        ("0..8..9", 'such as "0..8"'),
        ("٠..٨", 'such as "0..8"'),  # noqa: RUF001 - digits, but not these
        ("0..8" + " " * 100, 'such as "0..8"'),
        ("9..8", "larger than the second"),
        ("0..0", "replicas: 0"),
        (f"0..{MAX_REPLICAS + 1}", f"write {MAX_REPLICAS} or less"),
    ],
)
def test_what_is_no_limits_says_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=r"metadata.annotations\[gpudask.dev/autoscale\]: ") as error:
        read_limits({"annotations": {ANNOTATION_AUTOSCALE: text}})
    assert advice in str(error.value)
    assert len(str(error.value)) < 300


@given(st.text() | st.from_regex(r"[0-9]+\.\.[0-9]+", fullmatch=True))
def test_whatever_a_tenant_writes_there_has_an_answer(text: str) -> None:
    try:
        limits = parse_limits(text)
    except ValueError:
        return
    assert 0 <= limits.least <= limits.most <= MAX_REPLICAS


def pools(served: Json) -> dict[str, Json]:
    return {pool["name"]: pool for pool in served["pools"]}


def test_a_gpu_group_with_limits_is_a_pool_that_follows_gpu_demand() -> None:
    served = serve(a_cluster(), [gpu_group()])
    pool = pools(served.spec)["gpu"]
    assert pool["autoscale"] == {"min": 0, "max": 8}
    assert "replicas" not in pool
    assert "accepts" not in pool
    spec = Spec.model_validate(served.spec)
    assert [spec.accepts(each) for each in spec.pools] == ["any", "annotated"]
    assert ANNOTATION_AUTOSCALE not in str(served.spec), "its pods do not carry it: an edit would replace them"
    assert "team" in str(pool["template"])
    (told,) = [note.text for note in served.notes if note.path == f"metadata.annotations[{ANNOTATION_AUTOSCALE}]"]
    assert 'resources={"GPU": 1}' in told


def test_without_limits_its_replicas_are_its_size_as_before() -> None:
    served = serve(a_cluster(), [a_group("demo-gpu", resources=GPU)])
    assert (pools(served.spec)["gpu"]["replicas"], pools(served.spec)["gpu"]["accepts"]) == (1, "any")
    assert own_limits(served.spec) == {}


def test_the_default_group_of_a_daskcluster_and_of_a_job_may_have_them() -> None:
    served = serve(annotated(a_cluster()), [a_group()])
    assert own_limits(served.spec) == {"default": "0..8"}
    assert sizes(served.spec) == {"more": 1}
    job = a_job()
    made = serve_job(annotated(job, "1..2"))
    assert own_limits(made.spec["cluster"]["spec"]) == {"default": "1..2"}
    assert ANNOTATION_AUTOSCALE not in str(made)


def test_a_bad_value_spoils_its_group_alone_whose_pool_stays_as_it_was() -> None:
    good = serve(a_cluster(), [gpu_group(), a_group()])
    served = serve(a_cluster(), [gpu_group("many"), a_group()])
    assert served.pools == {"demo-more": "more"}
    assert served.refused["demo-gpu"].startswith("metadata.annotations[gpudask.dev/autoscale]: 'many' is no limits")
    merged = merged_spec(served.spec, good.spec, served.kept)
    assert pools(merged)["gpu"] == pools(good.spec)["gpu"]
    with pytest.raises(UnservableError, match=r"DaskCluster demo: metadata.annotations\[gpudask.dev/autoscale\]"):
        serve(annotated(a_cluster(), "many"), [])


def test_limits_of_a_pool_that_is_there_change_it_and_end_what_was_set_before() -> None:
    present = serve(a_cluster(), [a_group("demo-gpu", resources=GPU, n_workers=3)]).spec
    present |= {"overrides": [{"pool": "gpu", "replicas": 5}, {"pool": "default", "replicas": 1}]}
    merged = merged_spec(serve(a_cluster(), [gpu_group()]).spec, present)
    assert own_limits(merged) == {"gpu": "0..8"}
    assert "replicas" not in pools(merged)["gpu"]
    assert merged["overrides"] == present["overrides"][1:]
    pools(merged)["gpu"]["autoscale"]["idleTimeout"] = "5m"
    merged["overrides"].append({"pool": "gpu", "replicas": 2})
    assert merged_spec(serve(a_cluster(), [gpu_group()]).spec, merged) == merged, "set on the GpuDaskCluster"
    lower = merged_spec(serve(a_cluster(), [gpu_group("1..2")]).spec, merged)
    assert pools(lower)["gpu"]["autoscale"] == {"min": 1, "max": 2, "idleTimeout": "5m"}
    assert lower["overrides"] == present["overrides"][1:]


def test_limits_that_are_taken_away_leave_the_pool_and_others_stay() -> None:
    present = serve(a_cluster(), [gpu_group()]).spec | {"overrides": [{"pool": "gpu", "replicas": 5}]}
    served = serve(a_cluster(), [a_group("demo-gpu", resources=GPU)]).spec
    kept = merged_spec(served, present)
    assert own_limits(kept) == {"gpu": "0..8"}, "somebody set them on the GpuDaskCluster"
    merged = merged_spec(served, present, released=frozenset({"gpu"}))
    assert own_limits(merged) == {}
    assert merged["overrides"] == kept["overrides"] == present["overrides"]
    pools(merged)["gpu"]["replicas"] = 2
    assert merged_spec(served, merged, released=frozenset({"gpu"})) == merged, "once"


def test_convert_reads_them_too_and_says_what_becomes_of_the_size() -> None:
    documents: list[Any] = [
        {"apiVersion": "kubernetes.dask.org/v1", **body} for body in (annotated(a_cluster()), gpu_group("1..4"))
    ]
    notes = Notes()
    (made,) = convert(documents, notes)
    assert own_limits(made["spec"]) == {"default": "0..8", "gpu": "1..4"}
    assert [note.text for note in notes.items if note.path == "spec.worker.replicas"] == [
        "2: left out, it follows demand: 0..8 pods",
        "1: left out, it follows demand: 1..4 pods",
    ]
    autoscaler = {"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskAutoscaler", "metadata": {"name": "demo"}}
    autoscaler |= {"metadata": documents[0]["metadata"], "spec": {"cluster": "demo", "minimum": 1, "maximum": 2}}
    (made,) = convert([*documents, autoscaler], Notes())
    assert own_limits(made["spec"]) == {"default": "1..2", "gpu": "1..4"}
    with pytest.raises(NotConvertibleError, match=r"DaskWorkerGroup demo-gpu: metadata\.annotations"):
        convert([documents[0], {**documents[1], **gpu_group("4")}], Notes())


@pytest.mark.parametrize("autoscale", [None, 5, {}, {"max": "x"}, {"max": 2, "min": []}, {"max": 3}])
def test_limits_of_any_spec(autoscale: Any) -> None:
    found = own_limits({"pools": [None, {"name": "a", "autoscale": autoscale}]})
    assert found == ({"a": "0..3"} if autoscale == {"max": 3} else {})
    assert own_limits({"pools": autoscale}) == {}
