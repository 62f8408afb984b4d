"""The watch: a cluster is gone once neither it nor a pod of it is there."""

from __future__ import annotations

from gpudask.api import Json

import pytest

from local.errors import LocalClusterError
from tests.leaks.watch import Watch


def nothing(_path: str) -> Json | None:
    return None


def cluster(name: str, **metadata: str) -> Json:
    return {"metadata": {"name": name, **metadata}}


def pod(name: str, of: str = "") -> Json:
    return {"metadata": {"name": name, **({"labels": {"gpudask.dev/cluster": of}} if of else {})}}


def test_it_is_gone_with_its_last_pod():
    watch = Watch(nothing, "lab")
    watch.note([cluster("a")], [pod("a-0", "a")], 1.0)
    assert watch.count == 1
    watch.note([], [pod("a-0", "a")], 2.0)
    assert watch.seen.left == {"a": ("pod a-0",)}
    assert watch.seen.gone_at == {}
    watch.note([], [], 3.0)
    watch.note([], [], 4.0)
    assert watch.seen.left == {}
    assert watch.seen.gone_at == {"a": 3.0}


def test_one_that_comes_again_is_not_gone():
    watch = Watch(nothing, "lab")
    watch.note([cluster("a")], [], 1.0)
    watch.note([], [], 2.0)
    watch.note([cluster("a")], [], 3.0)
    assert watch.seen.gone_at == {}
    assert watch.seen.left == {"a": ("cluster a",)}


def test_a_pod_of_no_cluster_is_seen():
    watch = Watch(nothing, "lab")
    watch.note([], [pod("stray")], 1.0)
    assert watch.seen.left == {"no cluster": ("pod stray",)}


@pytest.mark.parametrize(
    ("body", "there", "kept"),
    [(None, False, False), (cluster("a"), True, True), (cluster("a", deletionTimestamp="now"), True, False)],
    ids=["none", "there", "deleted, and still there"],
)
async def test_one_that_somebody_deleted_is_not_left(body: Json | None, there: bool, kept: bool):
    watch = Watch(lambda _: body, "lab")
    assert await watch.has("a") is there
    assert await watch.has("a", uncalled=True) is kept


async def test_it_waits_until_all_is_gone():
    answers: list[Json] = [{"items": [cluster("a")]}, {"items": []}]
    watch = Watch(lambda path: {"items": []} if path.endswith("/pods") else answers.pop(0), "lab")
    await watch.until_gone(3600)
    assert answers == []
    assert watch.seen.left == {}


async def test_what_stays_is_told_after_the_time():
    watch = Watch(lambda path: {"items": []} if path.endswith("/pods") else {"items": [cluster("a")]}, "lab")
    await watch.until_gone(0)
    assert watch.seen.left == {"a": ("cluster a",)}


async def test_an_api_server_that_does_not_answer_is_no_proof():
    def away(_path: str) -> Json | None:
        raise LocalClusterError("away")

    with pytest.raises(LocalClusterError, match="away"):
        await Watch(away, "lab").until_gone(-1)
