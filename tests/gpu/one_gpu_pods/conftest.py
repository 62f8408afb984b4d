"""The one Dask cluster of these tests: a CPU pool, and a GPU pool of pods with one GPU each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client
from gpudask_e2e import record

from tests.e2e.platform import Platform
from tests.e2e.space import Space
from tests.gpu.manifests import cluster, cpu, following, gpu
from tests.gpu.one_gpu_pods.shared import NAME, Shared
from tests.gpu.workers import gpu_client


@pytest.fixture(scope="package")
def shared(platform: Platform, gpus: int) -> Iterator[Shared]:
    """The cluster, with no GPU pod at first."""
    with Space.opened(platform, pod_security="privileged") as space:  # the driver comes by hostPath
        space.apply(cluster(NAME, cpu(), gpu(autoscale=following(gpus))))
        space.wait_ready(NAME)
        with gpu_client(space, NAME) as client:
            record(client)
            yield Shared(space, client, gpus)


@pytest.fixture
def space(shared: Shared) -> Space:
    """The namespace of the shared cluster."""
    return shared.space


@pytest.fixture
def client(shared: Shared) -> Client:
    """The client of the shared cluster."""
    return shared.client


@pytest.fixture
def workers(shared: Shared) -> Iterator[list[str]]:
    """The addresses of one worker for each GPU, which stay for the test."""
    shared.size(shared.gpus)
    yield shared.space.wait(shared.all_gpu_workers, "there is a worker for each GPU")
    shared.size(None)
