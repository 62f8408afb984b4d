"""The programs give their known answers where nothing is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

from tests.chaos.programs import PROGRAMS, Program


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    options = {"n_workers": 2, "processes": False, "dashboard_address": ":0", "resources": {"GPU": 1}}
    with LocalCluster(threads_per_worker=2, **options) as cluster, Client(cluster, set_as_default=False) as found:
        yield found


@pytest.mark.dask
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gives_its_known_answer(client: Client, program: Program):
    assert program.run(client, 3, 60.0) == program.answer(3)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_answer_is_its_seeds_own(program: Program):
    assert len({program.answer(seed) for seed in range(5)}) == 5
