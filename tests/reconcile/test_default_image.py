"""A cluster whose manifest names no image gets the operator's default, and keeps it as long as its scheduler lives."""

from __future__ import annotations

from gpudask.desired import spec_hash
from gpudask.planning.scheduler import with_default_image
from tests.builders import a_manifest, a_pool, a_spec
from tests.planning.builders import cluster, scheduler_pod, stored
from tests.reconcile.fake_api import Bench, FakeApi

NONE = "False Invalid: spec.image: required here, because the operator has no default image: write the image of your"


def images(bench: Bench) -> dict[str, str]:
    """The images of the pods, by kind; of two in one kind both."""
    found: dict[str, set[str]] = {}
    for path, body in bench.api.objects.items():
        if path.startswith(bench.path):
            kind = body["metadata"]["labels"]["dask.org/component"]
            found.setdefault(kind, set()).add(body["spec"]["containers"][0]["image"])
    return {kind: ", ".join(sorted(names)) for kind, names in found.items()}


def a_bench(default: str, **spec: object) -> Bench:
    bench = Bench(FakeApi(), stored(a_manifest(a_pool(replicas=2), **{"image": None, **spec})))
    bench.context.default_image = default
    return bench


async def test_pods_are_made_of_the_default_image():
    bench = a_bench("dask:1")
    await bench.run(5)
    assert images(bench) == {"scheduler": "dask:1", "worker": "dask:1"}
    assert bench.condition("Accepted").startswith("True Valid")


async def test_the_manifests_image_wins():
    bench = a_bench("dask:1", image="mine:1")
    await bench.run(5)
    assert images(bench) == {"scheduler": "mine:1", "worker": "mine:1"}


async def test_a_new_default_replaces_no_pod_and_comes_with_the_next_scheduler():
    bench = a_bench("dask:1")
    await bench.run(5)
    bench.watch()
    before = bench.names()
    bench.context.default_image = "dask:2"
    await bench.run(60)
    assert (bench.names(), images(bench)) == (before, {"scheduler": "dask:1", "worker": "dask:1"})
    [scheduler] = [name for name in before if "scheduler" in name]
    bench.pods.forget(bench.api.objects.pop(f"{bench.path}/{scheduler}")["metadata"]["uid"])
    for _ in range(5):
        await bench.run(60)
        bench.watch()
    assert images(bench) == {"scheduler": "dask:2", "worker": "dask:2"}, "workers of the older image go, too"


async def test_with_neither_the_cluster_says_what_to_write_until_it_is_written():
    bench = a_bench("")
    await bench.run(5)
    assert bench.condition("Accepted").startswith(NONE)
    assert bench.names() == []
    bench.edit(a_spec(a_pool(replicas=2), image="mine:1"))
    await bench.run(5)
    assert bench.condition("Accepted").startswith("True Valid")
    assert images(bench) == {"scheduler": "mine:1", "worker": "mine:1"}


async def test_a_default_that_is_taken_away_leaves_what_runs():
    bench = a_bench("dask:1")
    await bench.run(5)
    bench.watch()
    bench.context.default_image = ""
    await bench.run(5)
    assert bench.condition("Accepted").startswith("True Valid")


def test_an_image_that_is_removed_from_the_manifest_becomes_the_default():
    of = cluster(image="mine:1")
    edited = cluster(image=None, generation=2)
    assert with_default_image(edited, scheduler_pod(of), "dask:1").spec.image == "dask:1"


def test_naming_the_default_that_is_in_force_restarts_nothing():
    written, default = cluster(image="dask:1"), with_default_image(cluster(image=None), None, "dask:1")
    assert spec_hash.of_scheduler(written.spec) == spec_hash.of_scheduler(default.spec)
    assert spec_hash.of_worker(written.spec, written.spec.pools[0]) == spec_hash.of_worker(
        default.spec, default.spec.pools[0]
    )


def test_passes_share_one_spec_since_what_is_rendered_of_it_is_cached_by_identity():
    of = cluster(image=None)
    assert with_default_image(of, None, "dask:1").spec is with_default_image(of, None, "dask:1").spec
