"""The extension's server without a browser: what it asks of KubeCluster, what that costs, and how it ends."""

from __future__ import annotations

import signal
import time
import urllib.error
from pathlib import Path

import pytest

from gpudask.api import Json
from tests.eventually import eventually
from tests.jupyterlab.conftest import FACTORY, Platform
from tests.jupyterlab.server import Lab, lab
from tests.releases.environment import Environment

pytestmark = [pytest.mark.registry, pytest.mark.dask, pytest.mark.timeout(600)]
CLUSTERS = "dask/clusters"
# As docs/jupyterlab.md has it.
CONNECTING = """
labextension:
  factory:
    module: gpudask
    class: KubeCluster
    kwargs: {name: demo, create_mode: CONNECT_ONLY}
"""
PROXIED = FACTORY + 'distributed: {dashboard: {link: "/proxy/{port}/status"}}\n'
_MINUTES = 5
_LOOKS = 30  # two minutes' worth
_UPKEEP = 4  # of the ports that are forwarded, also on a slow machine
_SPEED = 20
_POLL_SECONDS = 5  # the extension's page asks its server so often
# A KubeCluster for which time passes so many times as fast: no more, as its deadlines have to hold on a busy machine.
_FAST = f"""
import asyncio, time
from gpudask import KubeCluster
from gpudask.kubecluster.timing import Clock, Timing

async def sleep(seconds):
    await asyncio.sleep(seconds / {_SPEED})

class FastCluster(KubeCluster):
    def __init__(self, *args, **options):
        super().__init__(*args, timing=Timing(clock=Clock(monotonic=lambda: time.monotonic() * {_SPEED}, sleep=sleep)),
                         scheduler_sync_interval=10 / {_SPEED}, **options)
"""


def made(server: Lab) -> Json:
    """A cluster, by a click on NEW, once its worker is there."""
    model: Json = server.ask("PUT", CLUSTERS)
    eventually(lambda: of_id(server, model["id"])["workers"] == 1, "its worker")
    return of_id(server, model["id"])


def of_id(server: Lab, number: str) -> Json:
    model: Json = server.ask("GET", f"{CLUSTERS}/{number}")
    return model


def test_a_kernel_uses_the_cluster_by_the_address_that_is_listed(one_lab: Lab, platform: Platform):
    """As the code that the extension puts into a notebook does."""
    model = made(one_lab)
    code = f"""if True:
        import json
        from dask.distributed import Client
        client = Client({model["scheduler_address"]!r})
        print(json.dumps({{"sum": client.submit(sum, [1, 2]).result()}}))"""

    assert Environment.of_jupyterlab().run("-c", code) == {"sum": 3}
    one_lab.ask("DELETE", f"{CLUSTERS}/{model['id']}")
    assert platform.names == []


def test_the_numbers_are_of_workers_that_run_and_the_sizes_of_the_default_pool(one_lab: Lab, platform: Platform):
    model = made(one_lab)
    path = f"{CLUSTERS}/{model['id']}"
    assert (model["workers"], model["cores"], model["memory"]) == (1, 1, "1.00 GiB")

    one_lab.ask("PATCH", path, {**model, "workers": 2})
    eventually(lambda: of_id(one_lab, model["id"])["memory"] == "2.00 GiB", "two workers")
    assert platform.override("cpu") == {"replicas": 2}

    adapting = one_lab.ask("PATCH", path, {**model, "adapt": {"minimum": 1, "maximum": 4}})
    assert adapting["adapt"] == {"minimum": 1, "maximum": 4}
    eventually(lambda: platform.override("cpu") == {"min": 1, "max": 4}, "the limits")
    eventually(lambda: of_id(one_lab, model["id"])["workers"] == 1, "what nothing asks for has gone")

    fixed = one_lab.ask("PATCH", path, {**model, "workers": 1})
    assert "adapt" not in fixed
    assert platform.override("cpu") == {"replicas": 1}
    one_lab.ask("DELETE", path)


def test_a_cluster_that_is_gone_can_be_shut_down(one_lab: Lab, platform: Platform):
    model = made(one_lab)
    platform.server.clusters.clear()
    eventually(lambda: platform.server.pods == [], "its pods are gone")
    assert of_id(one_lab, model["id"])["name"] == model["name"], "it is listed until its user lets go of it"

    one_lab.ask("DELETE", f"{CLUSTERS}/{model['id']}")
    assert one_lab.ask("GET", CLUSTERS) == []


def test_a_number_that_the_api_server_refuses_is_an_error_and_the_cluster_stays(one_lab: Lab, platform: Platform):
    model = made(one_lab)
    name = platform.names[0]
    platform.server.forbidden.add(f"PATCH {name}")

    with pytest.raises(urllib.error.HTTPError) as refused:
        one_lab.ask("PATCH", f"{CLUSTERS}/{model['id']}", {**model, "workers": 4})

    assert f"cannot PATCH {name}" in refused.value.read().decode()
    assert of_id(one_lab, model["id"])["workers"] == 1
    one_lab.ask("DELETE", f"{CLUSTERS}/{model['id']}")


def test_the_dashboard_is_behind_the_server_by_the_extension_s_own_proxy(one_lab: Lab):
    model = made(one_lab)

    plots = one_lab.ask("GET", f"dask/dashboard/{model['id']}/individual-plots.json")

    assert plots["Individual Task Stream"] == "/individual-task-stream"
    one_lab.ask("DELETE", f"{CLUSTERS}/{model['id']}")


def test_two_labs_of_one_namespace_have_clusters_of_their_own_and_end_them(platform: Platform, tmp_path: Path):
    with (
        lab(tmp_path / "one", platform.kubeconfig, FACTORY) as one,
        lab(tmp_path / "other", platform.kubeconfig, PROXIED) as other,
    ):
        of_one, of_other = made(one), made(other)
        assert len(platform.names) == 2
        assert [model["id"] for model in one.ask("GET", CLUSTERS)] == [of_one["id"]]

        # As on a hub, where the browser reaches nothing but the server.
        link = of_other["dashboard_link"]
        assert link.startswith("/proxy/")
        assert link.endswith("/status")
        plots = other.ask("GET", link.strip("/").replace("/status", "/individual-plots.json"))
        assert plots["Individual Task Stream"] == "/individual-task-stream"

        one.end(signal.SIGTERM)
        assert one.process.returncode == 0
        assert len(platform.names) == 1, "its own is gone, and no other"
        assert of_id(other, of_other["id"])["workers"] == 1

        # Twice, as one who does not answer its question.
        other.process.send_signal(signal.SIGINT)
        eventually(lambda: "Shut down this Jupyter server" in other.log or other.process.poll() is not None, "asks")
        other.end(signal.SIGINT)
        assert platform.names == []


def test_an_idle_lab_that_nobody_looks_at_asks_the_api_server_at_most_twice_a_minute(
    platform: Platform, tmp_path: Path
):
    (tmp_path / "fast_cluster.py").write_text(_FAST)
    config = FACTORY.replace("module: gpudask", "module: fast_cluster").replace("KubeCluster", "FastCluster")
    path = f"{tmp_path}:{Path.cwd() / 'operator'}"
    platform.server.watch_speed = _SPEED
    with lab(tmp_path / "lab", platform.kubeconfig, config, {"PYTHONPATH": path}) as running:
        model = made(running)
        began, ends = len(platform.server.requests), time.monotonic() + _MINUTES * 60 / _SPEED

        polls = 0
        while time.monotonic() < ends:  # what is measured is what happens meanwhile
            assert of_id(running, model["id"])["workers"] == 1
            polls += 1
            time.sleep(_POLL_SECONDS / _SPEED)

        asked = platform.server.requests[began:]
        running.ask("DELETE", f"{CLUSTERS}/{model['id']}")
    platform.server.watch_speed = 1
    assert polls > 10
    assert len(asked) <= 2 * _MINUTES, asked


def test_an_open_panel_that_looks_for_the_dashboard_costs_at_most_two_requests_a_minute(
    one_lab: Lab, platform: Platform
):
    """Every four seconds, as long as somebody sees the panel: docs/jupyterlab.md says so."""
    model = made(one_lab)
    path = f"dask/dashboard/{model['id']}/individual-plots.json"
    assert one_lab.ask("GET", path)
    began = len(platform.server.requests)

    for _ in range(_LOOKS):
        assert one_lab.ask("GET", path)

    asked = platform.server.requests[began:]
    one_lab.ask("DELETE", f"{CLUSTERS}/{model['id']}")
    assert not any(line.endswith("/portforward") for line in asked), asked
    assert len(asked) <= _UPKEEP, asked


def test_new_connects_to_a_cluster_that_is_there_and_leaves_it(platform: Platform, tmp_path: Path):
    body: Json = {"metadata": {"name": "demo", "namespace": "lab", "resourceVersion": "1", "uid": "uid-of-demo"}}
    platform.server.clusters["demo"] = {**body, "spec": {"image": "i", "pools": [{"name": "cpu", "replicas": 1}]}}
    with lab(tmp_path / "lab", platform.kubeconfig, CONNECTING) as running:
        model = made(running)
        running.ask("DELETE", f"{CLUSTERS}/{model['id']}")

    assert platform.names == ["demo"], "whoever did not make it does not delete it"
