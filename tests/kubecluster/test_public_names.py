"""The public names: what TAB offers, what importing one costs, what `discover()` prints."""

import asyncio
import subprocess
import sys

import pytest

from gpudask import discover
from gpudask import kubecluster as room
from tests.kubecluster import fake_server as fake


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["gpudask", "gpudask.kubecluster"])
def test_tab_knows_the_public_names_and_loads_nothing(module: str):
    run(
        f"import sys, importlib; module = importlib.import_module({module!r})\n"
        "assert {'CreateMode', 'KubeCluster', 'KubeClusterError', 'discover', 'has_gpu'} <= set(dir(module))\n"
        "assert not {'distributed', 'httpx', 'pydantic'} & set(sys.modules)\n"
    )


def test_importing_the_class_loads_neither_models_nor_libraries_of_the_network():
    """They are half a second of CPU, which starting a cluster may cost, and not an import."""
    run(
        "import sys; from gpudask import KubeCluster\n"
        "heavy = {'pydantic', 'gpudask.api.spec', 'httpx', 'httpx_ws', 'kr8s', 'kubernetes', 'kopf'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )


def test_what_is_discovered_prints_as_a_list_that_says_how_to_connect(server: fake.FakeServer):
    server.clusters["other"] = fake.cluster("other", "cpu")
    said = "<clusters in namespace lab: demo, other. KubeCluster.from_name('demo') connects>"

    assert repr(discover()) == said

    async def in_a_notebook() -> str:
        return repr(discover())

    assert asyncio.run(in_a_notebook()) == said


def test_where_there_is_nothing_to_discover_that_is_printed(server: fake.FakeServer):
    server.clusters.clear()
    assert repr(discover()) == "<no clusters in namespace lab: KubeCluster() makes one>"

    server.forbidden.add("GET gpudaskclusters")
    assert repr(discover()).startswith("<no clusters can be seen: cannot list gpudaskclusters: ")


def test_printing_waits_for_no_server_that_hangs(server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch):
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(room, "_PRINT_SECONDS", 0.1)
    monkeypatch.setattr(room.Discovery, "_list", hang)

    assert repr(discover()) == "<no clusters can be seen: the API server did not answer within 0.1 s>"
