"""Records go when they are old or too many, and those whose cluster may be gone are found."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.api import Json
from gpudask.api.status import iso
from gpudask.history.retention import UNFINISHED_SECONDS, Kept, Sweep, parse, sweep
from tests.planning.builders import NOW

HOUR = 3600.0


def body(number: int = 0, *, ended: float | None = None, keep: str = "", **metadata: Any) -> Json:
    annotations = {"gpudask.dev/cluster-uid": f"{number:08}-uid"} | ({"gpudask.dev/keep-seconds": keep} if keep else {})
    if ended is not None:
        annotations["gpudask.dev/ended"] = iso(ended)
    known = {
        "name": f"demo-{number:08}",
        "namespace": "team",
        "uid": f"uid-{number}",
        "resourceVersion": "5",
        "creationTimestamp": iso(NOW - 10 * HOUR),
        "labels": {"gpudask.dev/cluster": "demo"},
        "annotations": annotations,
    }
    return {"metadata": known | metadata}


def swept(*bodies: Json, per_namespace: int = 100) -> Sweep:
    kept = [found for found in map(parse, bodies) if found is not None]
    return sweep(kept, now=NOW, keep_seconds=5 * HOUR, per_namespace=per_namespace)


def names(records: tuple[Kept, ...]) -> list[str]:
    return [record.name[-1] for record in records]


def test_a_record_goes_when_its_time_has_come():
    found = swept(body(1, ended=NOW - 6 * HOUR), body(2, ended=NOW - 4 * HOUR))
    assert names(found.expired) == ["1"]
    assert found.requeue_after == HOUR


def test_one_of_a_cluster_that_ended_lately_may_lack_what_its_pods_came_to():
    ago = {1: 60.0, 2: UNFINISHED_SECONDS - 1, 3: UNFINISHED_SECONDS, 4: -100.0}
    bodies = [body(number, ended=NOW - seconds) for number, seconds in ago.items()]
    found = swept(*bodies, body(5), body(6, ended=NOW - 60.0, labels=None), body(7, ended=NOW - 60.0, keep="1"))
    assert (names(found.recent), names(found.unended)) == (["1", "2", "4"], ["5"])
    assert names(swept(*bodies, per_namespace=1).recent) == ["4"], "none that goes"


def test_a_cluster_may_ask_for_less_and_not_for_more():
    found = swept(body(1, ended=NOW - 2 * HOUR, keep="3600"), body(2, ended=NOW - 6 * HOUR, keep="999999999"))
    assert names(found.expired) == ["1", "2"]


def test_one_of_a_cluster_that_is_there_stays_however_old():
    found = swept(body(1))
    assert (names(found.unended), found.expired) == (["1"], ())
    cluster = found.unended[0].cluster
    assert cluster is not None
    assert (cluster.name, cluster.namespace, cluster.uid) == ("demo", "team", "00000001-uid")


def test_beyond_the_bound_of_a_namespace_those_that_ended_first_go():
    bodies = [body(n, ended=NOW - n * 60) for n in range(5)]
    other = body(9, ended=NOW - 4 * HOUR, namespace="other")
    assert names(swept(*bodies, other, per_namespace=3).expired) == ["4", "3"]


FORGED: dict[str, Json] = {
    "an end in the future": body(1, ended=NOW + 1000 * HOUR),
    "an end that is no time": body(1, annotations={"gpudask.dev/ended": "x" * 1000, "gpudask.dev/cluster-uid": "u"}),
    "a cluster of another name": body(1, labels={"gpudask.dev/cluster": "other"}),
    "no labels": body(1, labels=None),
    "labels that are a list of numbers": body(1, labels={"gpudask.dev/cluster": 7}),
    "a keep that is no number": body(1, ended=NOW, keep="-1"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_record_is_swept_like_others(what: str):
    found = swept(FORGED[what])
    assert len(found.unended) + len(found.expired) <= 1


def test_one_whose_cluster_nobody_can_tell_goes_by_when_it_was_made():
    assert names(swept(body(1, labels=None)).expired) == ["1"]


@pytest.mark.parametrize("what", [{}, {"metadata": 3}, body(uid=""), body(resourceVersion="x"), body(labels=[])])
def test_what_cannot_be_read_at_all_is_left_alone(what: Json):
    assert parse(what) is None
