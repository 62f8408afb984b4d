"""What a client part asks for, by the pools of its cluster."""

import pytest

from gpudask import KubeClusterError
from gpudask.kubecluster.on_gpu.choice import asked_of
from gpudask.kubecluster.on_gpu.remote import DEVICE_MODULES
from gpudask.preload.graphs.steering import MODULES

CPU = {"name": "cpu"}
GPU = {"name": "gpu", "gpu": {}}
FOUR = {"name": "four", "gpu": {"count": 4}}
BIG = {"name": "big", "gpu": {"count": 2}, "offers": {"GPU": 1, "BIG": 1}}


def body(*pools: dict) -> dict:
    return {"spec": {"pools": list(pools)}}


@pytest.mark.parametrize(
    ("pools", "pool", "asked"),
    [
        ((CPU, GPU), None, {"GPU": 0}),
        ((CPU, GPU), "gpu", {"GPU": 0}),
        ((BIG, GPU), None, {"GPU": 0}),  # the one with fewer GPUs a pod
        ((BIG, GPU), "big", {"GPU": 0, "BIG": 0}),
        (({"name": "rocm", "gpu": {"launcher": "dask"}, "offers": {"AMD": 2}},), None, {"AMD": 0}),
    ],
)
def test_it_asks_for_nothing_of_what_the_pool_offers(pools: tuple, pool: str | None, asked: dict):
    assert asked_of(body(*pools), pool) == asked


@pytest.mark.parametrize(
    ("pools", "pool", "said"),
    [
        ((CPU,), None, r"no pool of cpu has GPUs\. Add one: cluster\.add_pool"),
        ((CPU, GPU), "cpu", r"it has no GPUs\. Write one of gpu"),
        ((CPU, GPU), "gqu", r"there is no such pool\. Write one of gpu"),
        ((GPU, FOUR), "four", r"pool gpu offers GPU as well.*offers: \{GPU: 1, FOUR: 1\} in pool four"),
        (({**GPU, "offers": {}},), None, r"its workers offer nothing"),
    ],
)
def test_what_cannot_be_asked_for_says_what_to_write(pools: tuple, pool: str | None, said: str):
    with pytest.raises(KubeClusterError, match=said):
        asked_of(body(*pools), pool)


def test_the_modules_that_need_a_device_are_those_of_the_preload():
    assert DEVICE_MODULES == MODULES
