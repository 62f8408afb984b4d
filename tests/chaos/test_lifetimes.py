"""What pods lived by a watch, and what of that a ledger may say otherwise."""

from __future__ import annotations

from gpudask.api import Json

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.chaos.audit import PoolSample
from tests.chaos.lifetimes import Lifetimes, compare, recorded, unheard

LIMITS = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
AT_30 = PoolSample("c", "demo", "gpu", held=40.0, used=0.0, counted_at=130.0, at=130.5)


def pod(uid: str = "a", *, node: str = "node", phase: str = "Running", limits: Json = LIMITS) -> Json:
    metadata = {
        "uid": uid,
        "labels": {"gpudask.dev/pool": "gpu", "gpudask.dev/cluster": "demo"},
        "ownerReferences": [{"uid": "c", "controller": True}],
    }
    spec = {"containers": [limits]} | ({"nodeName": node} if node else {})
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def event(kind: str, of: Json) -> Json:
    return {"type": kind, "object": of}


def watched(*events: tuple[float, str, Json]) -> Lifetimes:
    """A watch that was there all the time from 100 on."""
    lifetimes = Lifetimes()
    lifetimes.listed([], 100.0)
    for at, kind, of in events:
        lifetimes.heard(event(kind, of), at)
    return lifetimes


LIVED_20 = (
    (105.0, "ADDED", pod(node="", phase="Pending")),
    (108.0, "MODIFIED", pod()),
    (128.0, "DELETED", pod()),
)


def test_a_ledger_that_counts_what_pods_lived_is_no_finding():
    found = compare(watched(*LIVED_20), [AT_30])
    assert (found.gap, found.verdict.is_clean) == (0.0, True)


@pytest.mark.parametrize(("held", "is_clean"), [(40.4, True), (39.3, True), (43.0, False), (30.0, False), (0.0, False)])
def test_another_count_is_wrong_beyond_one_percent(held: float, is_clean: bool):
    found = compare(watched(*LIVED_20), [replace(AT_30, held=held)])
    assert found.verdict.is_clean == is_clean
    assert found.gap == pytest.approx(abs(held - 40) / 40)


@pytest.mark.parametrize(("held", "is_clean"), [(49.0, True), (52.0, False)])
def test_news_that_come_late_are_allowed_for_with_each_gpu(held: float, is_clean: bool):
    found = compare(watched(*LIVED_20), [replace(AT_30, held=held)], late_seconds=5.0)
    assert found.verdict.is_clean == is_clean


@pytest.mark.parametrize("held", [35.0, 37.0, 40.0])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_ledger_may_count_until_the_containers_end_or_until_their_pod_is_gone(phase: str, held: float):
    stamp = stamped(125.0)
    ended = pod(phase=phase)
    ended["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": stamp}}}]
    last = (128.0, "DELETED" if phase == "Running" else "MODIFIED", ended)
    told = compare(watched(*LIVED_20[:-1], last), [replace(AT_30, held=held)])
    assert (told.gap, told.verdict.is_clean) == (0.0, True)
    goes_on = [{"state": {"terminated": {"finishedAt": stamp}}}, {"state": {"running": {}}}]
    ended["status"]["containerStatuses"] = goes_on
    assert compare(watched(*LIVED_20[:-1], last), [replace(AT_30, held=34.0)]).gap > 0


def stamped(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("held", "is_clean"), [(50.0, True), (45.0, True), (40.0, True), (53.0, False), (37.0, False)])
def test_a_ledger_may_count_from_when_a_node_was_given_or_from_when_that_was_told(held: float, is_clean: bool):
    given = pod()
    given["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamped(103.0)}]
    told = compare(watched((108.0, "ADDED", given), LIVED_20[-1]), [replace(AT_30, held=held)])
    assert told.verdict.is_clean == is_clean


def record(gpu_seconds: float, before: float = 0.0, ended: str = "2026-12-01T18:00:00Z") -> Json:
    causes = [{"cause": "working", "gpuSeconds": gpu_seconds}]
    pool = {"name": AT_30.pool, "causes": causes, "causesBefore": [{"cause": "starting", "gpuSeconds": before}]}
    return {"cluster": {"uid": AT_30.uid}, "ended": ended, "pools": [pool]}


@pytest.mark.parametrize(
    ("kept", "is_clean"),
    [
        (record(40.0), True),
        (record(45.0, before=5.0), True),
        (record(30.0), False),
        (record(50.0), False),
        (record(40.0, ended=""), False),
    ],
)
def test_the_record_of_a_cluster_that_ended_has_the_last_word(kept: Json, is_clean: bool):
    early = replace(AT_30, held=0.0)
    assert not compare(watched(*LIVED_20), [early]).verdict.is_clean
    assert compare(watched(*LIVED_20), [early], recorded([kept])).verdict.is_clean == is_clean


def test_the_last_status_has_it_where_nobody_saw_the_end():
    unseen = record(30.0) | {"events": [{"reason": "EndedUnseen"}]}
    assert compare(watched(*LIVED_20), [AT_30], recorded([unseen])).verdict.is_clean
    assert not compare(watched(*LIVED_20), [replace(AT_30, held=30.0)], recorded([unseen])).verdict.is_clean


@pytest.mark.parametrize(
    ("behind", "is_clean"), [((107.0, 131.0), True), ((109.0, 131.0), False), ((107.0, 129.0), False)]
)
def test_a_status_knows_nothing_of_a_pod_that_came_while_watches_were_held_back(
    behind: tuple[float, float], is_clean: bool
):
    lacking = [replace(AT_30, held=0.0)]
    came = watched(*LIVED_20[:-1])
    assert not compare(came, lacking).verdict.is_clean
    assert compare(came, lacking, behind=[behind]).verdict.is_clean == is_clean


def test_a_status_knows_nothing_of_a_pod_that_went_while_watches_were_held_back():
    goes_on = [replace(AT_30, held=44.0)]
    assert not compare(watched(*LIVED_20), goes_on).verdict.is_clean
    assert compare(watched(*LIVED_20), goes_on, behind=[(127.0, 140.0)]).verdict.is_clean


@pytest.mark.parametrize(("until", "is_clean"), [(136.0, True), (131.0, False)])
def test_a_record_counts_a_pod_that_went_while_watches_were_held_back_until_these_are_let_go(
    until: float, is_clean: bool
):
    late = recorded([record(56.0)])  # both GPUs for eight seconds more
    assert not compare(watched(*LIVED_20), [AT_30], late).verdict.is_clean
    assert compare(watched(*LIVED_20), [AT_30], late, behind=[(115.0, until)]).verdict.is_clean == is_clean
    assert not compare(watched(*LIVED_20), [AT_30], late, behind=[(129.0, 140.0)]).verdict.is_clean


def test_nothing_is_heard_until_an_api_server_is_back_that_went_meanwhile():
    behind = [(100.0, 107.0)]
    assert unheard(behind, []) == behind
    assert unheard(behind, [(90.0, 99.0), (108.0, 120.0)]) == behind
    assert unheard(behind, [(104.0, 110.0), (112.0, 115.0)]) == [(100.0, 118.0)]


@pytest.mark.parametrize(
    ("held", "unseen_gpus", "is_clean"),
    [(20.0, 2, True), (30.0, 2, True), (40.0, 2, True), (30.0, 0, False), (30.0, 1, False), (0.0, 2, False)],
)
def test_of_gpus_whose_end_nobody_saw_a_record_may_lack_what_was_not_counted(
    held: float, unseen_gpus: int, is_clean: bool
):
    at_10 = replace(AT_30, counted_at=110.0, at=110.0, held=4.0)
    unseen = record(held) | {"unseenGpus": unseen_gpus}
    assert compare(watched(*LIVED_20), [at_10], recorded([unseen])).verdict.is_clean == is_clean


def test_a_pod_that_goes_on_has_lived_until_the_count():
    lifetimes = watched(*LIVED_20[:2])
    assert compare(lifetimes, [replace(AT_30, held=44.0)]).gap == 0.0
    assert compare(lifetimes, [replace(AT_30, held=40.0)]).gap > 0.05


def test_a_pod_that_failed_has_lived_until_then():
    failed = (115.0, "MODIFIED", pod(phase="Failed"))
    assert compare(watched(*LIVED_20[:2], failed, LIVED_20[2]), [replace(AT_30, held=14.0)]).gap == 0.0


def test_pods_without_gpus_or_a_node_or_an_owner_have_none():
    orphan = pod("b")
    del orphan["metadata"]["ownerReferences"]
    lifetimes = watched((105.0, "ADDED", pod(limits={})), (106.0, "ADDED", orphan), (107.0, "ADDED", pod("d", node="")))
    assert compare(lifetimes, [replace(AT_30, held=0.0)]) == compare(Lifetimes(), [])


def test_while_the_watch_was_away_a_pod_went_at_some_time_of_it():
    lifetimes = watched(*LIVED_20[:2])
    lifetimes.silent(110.0)
    lifetimes.listed([], 120.0)
    for held, is_clean in ((4.0, True), (30.0, True), (2.0, False), (32.0, False)):
        assert compare(lifetimes, [replace(AT_30, held=held)]).verdict.is_clean == is_clean


def test_a_watch_that_is_begun_anew_at_once_was_not_away():
    lifetimes = watched(*LIVED_20[:2])
    lifetimes.silent(119.8)
    lifetimes.listed([], 120.0)
    for held, is_clean in ((24.0, True), (22.0, False), (26.0, False)):
        assert compare(lifetimes, [replace(AT_30, held=held)]).verdict.is_clean == is_clean


def test_while_no_operator_counted_a_pod_went_at_some_time_of_it_too():
    before, after = replace(AT_30, held=4.0, counted_at=110.0, at=110.0), replace(AT_30, counted_at=140.0, at=140.0)
    for held, is_clean in ((34.0, True), (10.0, True), (69.0, True), (75.0, False)):
        found = compare(watched(*LIVED_20), [before, replace(after, held=held)])
        assert found.verdict.is_clean == is_clean


def test_a_cluster_whose_status_told_a_wrong_time_is_left_out():
    wrong = replace(AT_30, held=7200.0, at=AT_30.at + 3600)
    assert compare(watched(*LIVED_20), [wrong, replace(AT_30, held=7200.0)]).verdict.is_clean


def test_a_status_that_tells_no_time_is_not_compared():
    assert compare(watched(*LIVED_20), [replace(AT_30, counted_at=0.0, held=7.0)]).gap == 0.0
