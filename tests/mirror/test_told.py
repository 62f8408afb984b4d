"""What stock objects that people made are told: conditions, phases, owners."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.api import Json
from gpudask.api.reasons import Reason
from gpudask.mirror import objects, told
from gpudask.mirror.state import MirrorObject, observe_mirror
from gpudask.mirror.told import Condition
from tests.planning.builders import NOW

FINE = (Condition(told.SERVED, Reason.SERVED, "by x", holds=True),)
BAD = told.refused(Reason.INVALID, "spec.worker: write it")
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def an_object(status: Any = None, **metadata: Any) -> MirrorObject:
    known: Json = {"name": "demo", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    body = {"metadata": known | metadata, "spec": {"worker": {"replicas": 2}}, "status": status}
    return observe_mirror(objects.CLUSTER)(body)


@pytest.mark.parametrize(
    ("before", "conditions", "after"),
    [
        (None, FINE, "Pending"),
        ("Created", FINE, "Pending"),
        ("Running", FINE, "Running"),
        ("Suspended", FINE, "Suspended"),
        ("Error", FINE, "Pending"),
        ("Running", BAD, "Error"),
    ],
)
def test_the_phase(before: str | None, conditions: tuple[Condition, ...], after: str) -> None:
    written, _ = told.status(an_object({"phase": before}), conditions, NOW)
    assert written is not None
    assert written["phase"] == after


def test_what_was_told_is_not_told_again() -> None:
    written, news = told.status(an_object(), BAD, NOW)
    assert news == list(BAD)
    assert told.status(an_object(written), BAD, NOW + 60) == (None, [])


def test_nor_is_the_longest_message() -> None:
    conditions = told.refused(Reason.INVALID, "x" * 10_000)
    written, _ = told.status(an_object(), conditions, NOW)
    assert told.status(an_object(written), conditions, NOW + 60) == (None, [])


@pytest.mark.parametrize("kind", [objects.CLUSTER, objects.WORKER_GROUP, objects.JOB])
def test_of_a_status_that_somebody_writes_little_is_kept(kind: str) -> None:
    text = "x" * 100_000
    entry = {"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text, text: text}
    status = {"phase": text, "jobStatus": text, "clusterName": text, "conditions": [entry] * 100}
    metadata = {"name": "demo", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    item = observe_mirror(kind)({"metadata": metadata, "spec": {"cluster": "demo"}, "status": status})
    assert item.told
    assert len(repr(item.told)) < 40_000


def test_the_time_of_a_condition_is_when_its_status_changed() -> None:
    first, _ = told.status(an_object(), BAD, NOW)
    again, news = told.status(an_object(first), told.refused(Reason.INVALID, "another"), NOW + 60)
    assert first is not None
    assert again is not None
    assert [item["lastTransitionTime"] for item in again["conditions"]] == [
        item["lastTransitionTime"] for item in first["conditions"]
    ]
    assert [item.message for item in news] == ["another"]


def test_owners_that_are_there_stay_and_one_controls_it() -> None:
    job = {"apiVersion": "x/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    mine = told.owned(an_object(), {"name": "demo", "uid": "2"}, "2")["ownerReferences"]
    assert [(each["uid"], each.get("controller")) for each in mine] == [("2", True)]
    metadata = {"name": "more", "namespace": "default", "uid": "u", "resourceVersion": "7", "ownerReferences": [job]}
    group = observe_mirror(objects.WORKER_GROUP)({"metadata": metadata, "spec": {"cluster": "demo"}})
    both = told.owned(group, {"name": "demo", "uid": "2"}, "2")["ownerReferences"]
    assert both[0] == job
    assert "controller" not in both[1]


@given(JUNK)
def test_any_status_that_is_there_is_written_over(status: Any) -> None:
    written, _ = told.status(an_object(status), BAD, NOW)
    assert written is None or written["phase"] == "Error"


@given(st.dictionaries(st.sampled_from(["phase", "conditions"]), JUNK))
def test_so_is_one_with_its_fields(status: Json) -> None:
    written, _ = told.status(an_object(status), FINE, NOW)
    assert written is None or written["conditions"][0]["reason"] == "Served"


FLOW: Json = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "f"}
SERVING: Json = {"name": "demo", "uid": "c"}


def test_a_daskcluster_that_others_own_notes_what_serves_it_and_keeps_its_owners():
    alone, owned = an_object(), an_object(ownerReferences=[FLOW])
    assert told.owned(alone, SERVING, "2")["ownerReferences"][0]["uid"] == "c"
    noted = told.owned(owned, SERVING, "2")
    assert "ownerReferences" not in noted, "with another owner it would stay when the flow goes"
    assert an_object(ownerReferences=[FLOW], annotations=noted["annotations"]).owners == ("default/c",)


def test_the_note_on_a_copy_says_nothing_of_the_copy():
    noted = told.owned(an_object(ownerReferences=[FLOW]), SERVING, "2")
    assert an_object(uid="v", annotations=noted["annotations"]).owners == ()


OTHER: Json = {"apiVersion": "v1", "kind": "ConfigMap", "name": "flow", "uid": "flow"}
OURS: Json = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "name": "demo", "uid": "c"}


def an_owned(kind: str, *references: Json, owners: tuple[str, ...] = ()) -> MirrorObject:
    known: Json = {"uid": "u", "name": "demo", "kind": kind, "owner": "default/demo", "controller": "", "version": "1"}
    return MirrorObject(**known, references=references, owners=owners)


def test_an_owner_that_comes_after_ours_is_left_alone_with_the_daskcluster() -> None:
    item = an_owned(objects.CLUSTER, OURS, OTHER, owners=("default/c",))
    assert not told.is_settled(item, "default/c", "c")
    metadata = told.owned(item, {"name": "demo", "uid": "c"}, "1")
    assert metadata["ownerReferences"] == [OTHER]
    assert metadata["annotations"]["gpudask.dev/served-by"] == "u/c"
    assert told.is_settled(an_owned(objects.CLUSTER, OTHER, owners=("default/c",)), "default/c", "c")
    assert told.is_settled(an_owned(objects.CLUSTER, OURS, owners=("default/c",)), "default/c", "c")
    assert told.is_settled(an_owned(objects.WORKER_GROUP, OURS, OTHER, owners=("default/c",)), "default/c", "c")


def test_of_a_group_with_many_owners_none_is_lost() -> None:
    many = [OTHER | {"uid": f"{n}"} for n in range(17)]
    assert told.has_too_many_owners(an_owned(objects.WORKER_GROUP, *many))
    assert not told.has_too_many_owners(an_owned(objects.WORKER_GROUP, *many[:16]))
    assert not told.has_too_many_owners(an_owned(objects.WORKER_GROUP, *many, owners=("default/c",)))
