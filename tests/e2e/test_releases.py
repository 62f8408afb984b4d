"""Programs with other releases of distributed than the image's, each in an environment of its own, on one cluster."""

from __future__ import annotations

from gpudask.api import Json

from collections.abc import Iterator

import pytest

from distributed import __version__ as of_image

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.e2e.programs import IMAGE
from tests.e2e.space import Space
from tests.releases.environment import COMPUTED, NEWEST, OLDEST, TOO_OLD, run_program


@pytest.fixture(scope="module")
def space(platform: Platform) -> Iterator[Space]:
    """One room and one cluster for all: a GPU pod that a first program starts, the next one finds."""
    with Space.opened(platform) as room:
        room.apply(cluster("releases", cpu(), gpu(autoscale={"min": 0, "max": 1, "idleTimeout": "2m"})))
        room.wait_ready("releases")
        room.wait_workers("releases", "cpu", 1)
        yield room


def run(space: Space, release: str) -> Json:
    return run_program(release, str(space.kubectl.kubeconfig), "releases", space.kubectl.namespace)


def row(release: str) -> str:
    return f"distributed: client {release}, scheduler {of_image}, workers {of_image}"


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_a_program_with_another_release_scales_and_computes_in_both_pools(space: Space, release: str) -> None:
    seen = run(space, release)

    (warning,) = seen.pop("warnings")
    assert row(release) in warning
    assert f"image {IMAGE}" in warning
    assert seen == {"distributed": release} | COMPUTED


def test_a_program_whose_graphs_cannot_be_read_is_refused_with_all_three_and_the_image(space: Space) -> None:
    seen = run(space, TOO_OLD)

    assert row(TOO_OLD) in seen["error"]
    assert f"Run this program in image {IMAGE}" in seen["error"]
