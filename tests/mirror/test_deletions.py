"""Deletions of the mirror are remembered until they are acted on, but for the operator's own."""

from __future__ import annotations

from gpudask.mirror.objects import AUTOSCALER, CLUSTER
from gpudask.mirror.state import MirrorObject
from gpudask.mirror.sync import Deletions


def an_object(uid: str, kind: str = CLUSTER) -> MirrorObject:
    return MirrorObject(uid=uid, name="demo", kind=kind, owner="default/demo", controller="uid", version="1")


def test_what_is_deleted_while_another_deletion_is_acted_on_is_not_done_with_it():
    deletions = Deletions()
    deletions.add(an_object("first", AUTOSCALER))
    acted_on = deletions.pending()
    deletions.add(an_object("second", AUTOSCALER))

    deletions.done(acted_on)

    assert deletions.pending() == {"second": AUTOSCALER}
    assert deletions.has_kind(AUTOSCALER)
    assert not deletions.has_kind(CLUSTER)


def test_what_the_operator_deletes_means_nothing():
    deletions = Deletions()
    deletions.expect("ours")
    deletions.add(an_object("ours"))

    assert deletions.pending() == {}


def test_an_object_that_the_operator_could_not_delete_counts_once_somebody_does():
    deletions = Deletions()
    deletions.expect("kept")
    deletions.cancel_expected("kept")
    deletions.add(an_object("kept"))

    assert deletions.pending() == {"kept": CLUSTER}
