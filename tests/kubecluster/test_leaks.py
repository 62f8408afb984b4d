"""What a program makes is gone when it is gone, however it ends: real programs against a fake API server."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import Client

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster import resource
from gpudask.kubecluster.deletion import at_exit
from gpudask.kubecluster.timing import Timing
from tests.eventually import eventually, steadily
from tests.kubecluster import fake_server as fake
from tests.kubecluster.test_creating import operated  # noqa: F401 - a fixture

CREATE = "POST gpudaskclusters"
SECONDS = 40  # in which a program ends that waits for nothing
HEAD = """
import asyncio, gc, os, signal, sys, time
import multiprocessing
from gpudask import KubeCluster
from gpudask.kubecluster.timing import Timing
"""
CREATED = """
cluster = KubeCluster("mine", quiet=True)
print("created", flush=True)
"""
WAIT = "time.sleep(300)\n"


class Program:
    """A program that runs, and what it said so far."""

    def __init__(self, source: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + source],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), **options,
        )  # fmt: skip
        self.said: list[str] = []
        self._readers = [threading.Thread(target=self._read, args=[pipe]) for pipe in self._pipes()]
        for reader in self._readers:
            reader.start()

    def _pipes(self) -> list[Any]:
        return [self.process.stdout, self.process.stderr]

    def _read(self, pipe: Any) -> None:
        self.said.extend(pipe)

    @property
    def text(self) -> str:
        return "".join(self.said)

    def says(self, text: str) -> None:
        """Wait until it has."""
        eventually(lambda: text in self.text, f"{text!r} of the program", seconds=SECONDS, show=lambda: self.text)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def ends(self, seconds: float = SECONDS) -> int:
        """Its exit code; it has to come in time."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end within {seconds} s; it said: {self.text}")
        for reader in self._readers:
            reader.join(10)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(10)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts programs, and ends what is left of them."""
    programs: list[Program] = []

    def started(source: str, **options: Any) -> Program:
        programs.append(Program(source, **options))
        return programs[-1]

    yield started
    for program in programs:
        program.kill()


@contextmanager
def held(where: dict[str, threading.Event], what: str) -> Iterator[threading.Event]:
    """A request that is answered only once the event is set."""
    where[what] = threading.Event()
    try:
        yield where[what]
    finally:
        where.pop(what).set()


def gone(server: fake.FakeServer) -> bool:
    return list(server.clusters) == ["demo"]


# ---------------------------------------------------------------------- the end of a program


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("raise ValueError", 1),
        ("sys.exit(3)", 3),
        ("sys.executable = '/nowhere'; sys.path.clear()", 0),
        ("os.chdir('/')", 0),
        ("cluster.loop.add_callback(cluster.loop.stop); time.sleep(0.2)", 0),
    ],
    ids=["end", "exception", "exit", "no python to start, as in a frozen program", "another folder", "no loop any more"],
)
def test_the_end_of_a_program(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    tmp_path: Path,
    ending: str,
    code: int,
):
    program = start(CREATED + ending, cwd=tmp_path, env={**os.environ, "KUBECONFIG": "kubeconfig"})
    assert program.ends() == code, program.text
    assert "created" in program.text
    assert "gpudask:" not in program.text, "what goes at once is silent"
    assert gone(operated)


def test_an_asynchronous_program_that_closes_nothing(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start("""
async def main():
    await KubeCluster("mine", quiet=True, asynchronous=True)
asyncio.run(main())
""")
    assert program.ends() == 0, program.text
    assert gone(operated)


def test_what_nobody_holds_any_more_goes_while_the_program_runs(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(
        """
async def main():
    await KubeCluster("mine", quiet=True, asynchronous=True)
    print("created", flush=True)
asyncio.run(main())
gc.collect()
"""
        + WAIT
    )
    program.says("created")
    eventually(lambda: gone(operated), "its deletion", seconds=SECONDS, show=lambda: program.text)
    assert program.process.poll() is None


@pytest.mark.parametrize("ending", ["", "cluster.close()"], ids=["exit", "close"])
def test_the_context_is_another_by_then(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    tmp_path: Path,
    ending: str,
):
    program = start(CREATED + "while not os.path.exists('go'): time.sleep(0.05)\n" + ending, cwd=tmp_path)
    program.says("created")
    with fake.FakeServer() as other:
        other.clusters["mine"] = fake.cluster("mine", "cpu")
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(other.kubeconfig()))
        (tmp_path / "go").touch()
        assert program.ends() == 0, program.text
        assert "mine" in other.clusters
    assert gone(operated)


def test_an_api_server_that_comes_back_while_python_ends(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(CREATED + "sys.stdin.read()", stdin=subprocess.PIPE)
    program.says("created")
    operated.broken = 503
    assert program.process.stdin is not None
    program.process.stdin.close()
    program.says("gpudask: waiting up to 15 s until the API server has deleted cluster 'mine' in namespace 'lab'")
    operated.broken = None
    assert program.ends() == 0, program.text
    assert gone(operated)


def test_a_refused_deletion_says_what_is_left(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    operated.forbidden.add("DELETE mine")
    program = start(CREATED)
    assert program.ends() == 0
    assert "cluster 'mine' in namespace 'lab' was not deleted: User \"me\" cannot DELETE mine" in program.text
    assert "gpudask delete mine -n lab" in program.text


def test_a_server_that_stays_away_holds_nobody_for_ever(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start("cluster = KubeCluster('mine', quiet=True, timing=Timing(exit_seconds=2, notice_seconds=0.1))")
    with held(operated.held, "DELETE mine"):
        assert program.ends() == 0, program.text
    assert "was not deleted" in program.text
    assert "gpudask delete mine -n lab" in program.text


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    number: int,
):
    program = start(CREATED + WAIT)
    program.says("created")
    program.interrupt(number)
    assert program.ends() == -number, f"as without a cluster: {program.text}"
    assert gone(operated)


@pytest.mark.parametrize("first", ["cluster.close()", ""], ids=["within close", "within the end"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_once_while_it_is_deleted(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    first: str,
    number: int,
):
    program = start(CREATED + first)
    with held(operated.held, "DELETE mine"):
        program.says("gpudask: waiting up to 15 s")
        program.interrupt(number)
        if not first:
            program.says("gpudask: still deleting")
    program.ends()
    assert gone(operated)


def test_ctrl_c_twice_while_python_ends_gives_up_and_says_so(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(CREATED)
    with held(operated.held, "DELETE mine"):
        program.says("gpudask: waiting up to 15 s")
        program.interrupt()
        program.says("gpudask: still deleting")
        program.interrupt()
        assert program.ends(5) == 0
        assert "cluster 'mine' in namespace 'lab' may be left. Delete it: gpudask delete mine -n lab" in program.text
        assert "mine" in operated.clusters


@pytest.mark.parametrize(
    "before",
    ["signal.signal(signal.SIGTERM, lambda *_: print('its own', flush=True))\n" + CREATED, CREATED.replace("KubeCluster(", "signal.signal(signal.SIGTERM, lambda *_: print('its own', flush=True)) and KubeCluster(") ],
    ids=["before", "in the same line"],
)
def test_a_program_with_a_handler_of_its_own_keeps_it(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    before: str,
):
    program = start(before + WAIT)
    program.says("created")
    program.interrupt(signal.SIGTERM)
    program.says("its own")
    assert "mine" in operated.clusters
    program.interrupt()
    program.ends()
    assert gone(operated)
