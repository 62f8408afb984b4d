"""What a test leaves behind, or takes from others, fails that test and no other."""

from __future__ import annotations

import socket

import pytest
from distributed import Client, LocalCluster

from tests import isolation
from tests.isolation import isolated

pytestmark = pytest.mark.dask
NOWHERE = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}


def local_cluster() -> LocalCluster:
    return LocalCluster(n_workers=0, processes=False, scheduler_kwargs=NOWHERE)


def test_a_default_client_and_a_cluster_that_stay_are_named_with_their_test():
    with local_cluster() as before:
        with pytest.raises(AssertionError, match=r"the test leaves behind .*<Client: ") as told, isolated("the test"):
            client = Client(before)
        client.close()
    assert "LocalCluster" not in str(told.value), "that was there before"
    with pytest.raises(AssertionError, match=r"the test leaves behind .*LocalCluster"), isolated("the test"):
        cluster = local_cluster()
    cluster.close()


def test_who_closes_what_it_opens_passes_and_so_does_the_next_after_one_that_does_not():
    with isolated("the test"), local_cluster() as cluster, Client(cluster):
        pass
    with local_cluster() as cluster:
        with pytest.raises(AssertionError), isolated("the test"):
            client = Client(cluster)
        with isolated("the next"):
            pass
        client.close()


def test_who_takes_the_fake_schedulers_port_of_all_addresses_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(isolation, "FAKE_SCHEDULERS_PORT", 0)  # the real one belongs to tests that run now
    monkeypatch.setattr(isolation, "_listened", [])
    with pytest.raises(AssertionError, match=r"the test listens on :0"), isolated("the test"):
        socket.create_server(("", 0)).close()
    with isolated("the test"):
        socket.create_server(("127.0.0.1", 0)).close()
