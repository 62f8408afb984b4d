"""What a program makes is gone when it is gone, however it ends: real programs against a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudask import KubeCluster, KubeClusterError
from gpudask.kubecluster import resource
from gpudask.kubecluster.deletion import at_exit
from gpudask.kubecluster.timing import Clock, Timing
from tests.eventually import eventually, steadily
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import PATIENT, until
from tests.kubecluster.test_creating import operated  # noqa: F401 - a fixture

CREATE = "POST gpudaskclusters"
SECONDS = 120  # by then a program has ended that waits for nothing, also on a busy machine
HEAD = """
import asyncio, gc, multiprocessing, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, too
from gpudask import KubeCluster
from gpudask.kubecluster.timing import Timing
PATIENT = Timing(exit_seconds=120, creation_seconds=120)  # a busy machine takes its time
"""
CREATED = """
cluster = KubeCluster("mine", quiet=True, timing=PATIENT)
print("created", flush=True)
"""
WAIT = "time.sleep(300)\n"


class Program:
    """A program that runs, and what it said so far."""

    def __init__(self, source: str, before: Sequence[str] = (), **options: Any) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", HEAD + source],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            **options,
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
            reader.join(60)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(60)


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


@contextlib.contextmanager
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
    ids=[
        "end",
        "exception",
        "exit",
        "no python to start, as in a frozen program",
        "another folder",
        "no loop any more",
    ],
)
def test_the_end_of_a_program(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    tmp_path: Path,
    ending: str,
    code: int,
):
    silent = CREATED.replace("PATIENT", "Timing(exit_seconds=120, notice_seconds=60)")
    program = start(silent + ending, cwd=tmp_path, env={**os.environ, "KUBECONFIG": "kubeconfig"})
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
    await KubeCluster("mine", quiet=True, asynchronous=True, timing=PATIENT)
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
    await KubeCluster("mine", quiet=True, asynchronous=True, timing=PATIENT)
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
    program.says("gpudask: waiting up to 120 s until the API server has deleted cluster 'mine' in namespace 'lab'")
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
    program = start(
        "from gpudask.kubecluster import deletion\n"
        "deletion._MARGIN_SECONDS = 60\n"  # for the thread that deletes: it says why that was in vain
        "cluster = KubeCluster('mine', quiet=True, timing=Timing(exit_seconds=2, notice_seconds=0.1))"
    )
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
        program.says("gpudask: waiting up to 120 s")
        program.interrupt(number)
        if not first:
            program.says("gpudask: still deleting")
    program.ends()
    assert gone(operated)


def test_ctrl_c_twice_while_python_ends_gives_up_and_says_so(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(CREATED.replace("PATIENT", "Timing(exit_seconds=3600)"))
    with held(operated.held, "DELETE mine"):
        program.says("gpudask: waiting up to 3600 s")
        program.interrupt()
        program.says("gpudask: still deleting")
        program.interrupt()
        assert program.ends() == 0
        assert "cluster 'mine' in namespace 'lab' may be left. Delete it: gpudask delete mine -n lab" in program.text
        assert "mine" in operated.clusters


OWN = "signal.signal(signal.SIGTERM, lambda *_: print('its own', flush=True))\n"


@pytest.mark.parametrize("source", [OWN + CREATED, CREATED + OWN], ids=["before", "after"])
def test_a_program_with_a_handler_of_its_own_keeps_it(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    source: str,
):
    program = start(source + "print('waiting', flush=True)\n" + WAIT)
    program.says("waiting")
    program.interrupt(signal.SIGTERM)
    program.says("its own")
    assert "mine" in operated.clusters
    program.interrupt()
    program.ends()
    assert gone(operated)


def test_a_program_in_another_thread_has_its_signals_as_they_were(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(
        """
import threading
thread = threading.Thread(target=lambda: KubeCluster("mine", quiet=True, timing=PATIENT))
thread.start()
thread.join()
print("unchanged", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    )
    assert program.ends() == 0, program.text
    assert "unchanged True" in program.text
    assert gone(operated)


# ---------------------------------------------------------------------- forks


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("unshare") is None, reason="a PID namespace takes root and unshare"
)
def test_a_containers_first_process_ends_by_sigterm_and_lives_on_with_its_cluster_after_sighup(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start("assert os.getpid() == 1\n" + CREATED + WAIT, before=["unshare", "--pid", "--fork", "--kill-child"])
    program.says("created")
    unshare = program.process.pid
    first = int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text())

    os.kill(first, signal.SIGHUP)
    steadily(lambda: "mine" in operated.clusters, "it lives on", seconds=1, show=lambda: program.text)

    os.kill(first, signal.SIGTERM)
    assert program.ends() == 128 + signal.SIGTERM, program.text
    assert "mine" not in operated.clusters


FORKED = """
child = os.fork()
if child == 0:
    {child}
end = time.monotonic() + 60
while not (done := os.waitpid(child, os.WNOHANG))[0]:
    if time.monotonic() > end:
        os.kill(child, signal.SIGKILL)
        sys.exit("the child hangs")
    time.sleep(0.05)
print("child", os.waitstatus_to_exitcode(done[1]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("source", "child", "code"),
    [
        (CREATED, "sys.exit(0)", 0),
        (CREATED, "gc.collect(); raise ValueError", 1),
        (CREATED, "cluster.close(); sys.exit(5)", 5),
        (CREATED, "os.kill(os.getpid(), signal.SIGTERM); time.sleep(300)", -signal.SIGTERM),
        (CREATED, "cluster = None; gc.collect(); sys.exit(4)", 4),
        (CREATED + "with cluster:\n  ", "sys.exit(6)", 6),
        (CREATED + "from distributed import Client\nclient = Client(cluster)\n", "sys.exit(7)", 7),
        (CREATED + "from distributed import Client\nwith cluster, Client(cluster):\n  ", "sys.exit(8)", 8),
    ],
    ids=["exit", "exception", "close", "SIGTERM", "garbage", "with block", "client", "with block of a client"],
)
def test_a_forked_child_leaves_its_parents_cluster(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    source: str,
    child: str,
    code: int,
):
    indent = "  " if source.endswith("  ") else ""
    forked = FORKED.format(child=child).strip().replace("\n", "\n" + indent)
    program = start(source + forked, stdin=subprocess.PIPE)
    program.says("child")
    assert f"child {code}\n" in program.text
    assert "mine" in operated.clusters
    program.process.stdin.close()
    assert program.ends() == 0, program.text
    assert gone(operated)


def test_a_child_that_is_forked_within_an_event_loop_ends(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(
        """
async def main():
    async with KubeCluster("mine", quiet=True, asynchronous=True, timing=PATIENT) as cluster:
        """
        + FORKED.format(child="sys.exit(3)").strip().replace("\n", "\n        ")
        + "\nasyncio.run(main())",
        stdin=subprocess.PIPE,
    )
    program.says("child 3")
    assert "mine" in operated.clusters
    program.process.stdin.close()
    assert program.ends() == 0, program.text
    assert gone(operated)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_children_of_multiprocessing_leave_their_parents_cluster(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    method: str,
):
    program = start(
        CREATED
        + f"""
context = multiprocessing.get_context("{method}")
child = context.Process(target=os.getpid)
child.start()
child.join(60)
print("child", child.exitcode, flush=True)
if child.exitcode is None:
    child.kill()
sys.stdin.read()
""",
        stdin=subprocess.PIPE,
    )
    program.says("child 0")
    assert "mine" in operated.clusters
    program.process.stdin.close()
    assert program.ends() == 0, program.text
    assert gone(operated)


def test_a_forked_child_has_clusters_of_its_own(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    child = (
        "KubeCluster('childs', quiet=True, timing=PATIENT);"
        " print(sorted(each.name for each in at_exit.clusters)); sys.exit(0)"
    )
    program = start(
        "from gpudask.kubecluster.deletion import at_exit\n" + CREATED + FORKED.format(child=child),
        stdin=subprocess.PIPE,
    )
    program.says("child 0")
    assert "['childs']" in program.text
    assert sorted(operated.clusters) == ["demo", "mine"]
    program.process.stdin.close()
    assert program.ends() == 0, program.text
    assert gone(operated)


def test_a_forked_child_that_uses_its_parents_object_is_told_what_to_do(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    program = start(CREATED + FORKED.format(child="cluster.scale(3)"), stdin=subprocess.DEVNULL)
    program.ends()
    assert "child 1" in program.text
    assert "Connect here, too: KubeCluster.from_name('mine', namespace='lab')" in program.text


# ---------------------------------------------------------------------- an answer that does not come


def test_a_lost_answer_to_the_creation_is_found_out(operated: fake.FakeServer):  # noqa: F811
    operated.unanswered.add(CREATE)
    with KubeCluster("mine", quiet=True) as cluster:
        assert cluster.shutdown_on_close
        assert "mine" in operated.clusters
    assert gone(operated)


def test_somebody_elses_cluster_is_not_taken_for_the_one_whose_answer_was_lost(operated: fake.FakeServer):  # noqa: F811
    others = fake.cluster("mine", "cpu")
    others["metadata"]["annotations"] = {"gpudask.dev/creation-id": ["not", "even", "text"]}
    with held(operated.held, CREATE) as answer:
        operated.unanswered.add(CREATE)
        answering = threading.Thread(target=lambda: _replace(operated, others, answer))
        answering.start()
        with pytest.raises(KubeClusterError, match="cannot create"):
            KubeCluster("mine", quiet=True, create_mode="CREATE_ONLY", timing=Timing(creation_seconds=0.5))
        answering.join()
    assert operated.clusters["mine"] is others
    assert at_exit.clusters == []


def _replace(server: fake.FakeServer, others: dict[str, Any], answer: threading.Event) -> None:
    eventually(lambda: any(request.startswith("POST") for request in server.requests), "the creation")
    server.clusters["mine"] = others
    server.broken = 500
    answer.set()
    eventually(lambda: len(server.requests) > len(server.requests[: _after_post(server)]), "a look for it")
    server.broken = None


def _after_post(server: fake.FakeServer) -> int:
    return 1 + next(number for number, request in enumerate(server.requests) if request.startswith("POST"))


@pytest.mark.parametrize("where", ["late", "held"], ids=["made already", "made after the program gave up"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_the_answer_to_the_creation_is_awaited(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
    where: str,
    number: int,
):
    with held(getattr(operated, where), CREATE):
        program = start("cluster = KubeCluster('mine', quiet=True, timing=PATIENT)")
        eventually(lambda: _posted(operated), "the creation", seconds=SECONDS, show=lambda: program.text)
        program.interrupt(number)
        if number == signal.SIGINT or where == "held":
            is_there = lambda: program.process.poll() is None  # noqa: E731
            steadily(is_there, "it looks for what it made", seconds=1, show=lambda: program.text)
        else:
            program.ends()  # it finds it at once
    assert program.ends() == -number, program.text
    assert gone(operated)


def _posted(server: fake.FakeServer) -> bool:
    return any(request.startswith("POST") for request in server.requests)


NOTED = """
def interrupt(*arguments):
    print("interrupted", flush=True)
    signal.default_int_handler(*arguments)
signal.signal(signal.SIGINT, interrupt)
"""


def test_ctrl_c_twice_while_the_answer_is_awaited(
    operated: fake.FakeServer,  # noqa: F811
    start: Callable[..., Program],
):
    with held(operated.late, CREATE):
        program = start(NOTED + "KubeCluster('mine', quiet=True, timing=Timing(creation_seconds=3600))")
        eventually(lambda: _posted(operated), "the creation", seconds=SECONDS, show=lambda: program.text)
        program.interrupt()
        program.says("interrupted")  # two at once would be one
        steadily(lambda: program.process.poll() is None, "it waits for the answer", seconds=0.5)
        program.interrupt()
        assert program.ends() == -signal.SIGINT, program.text
    assert gone(operated)


async def test_a_start_that_is_cancelled_while_it_creates(operated: fake.FakeServer):  # noqa: F811
    with held(operated.late, CREATE):
        cluster = KubeCluster("mine", quiet=True, asynchronous=True, timing=Timing(creation_seconds=0.5))
        starting = asyncio.ensure_future(cluster)
        await until(lambda: "mine" in operated.clusters, "its creation")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert gone(operated)
    assert at_exit.clusters == []


def test_a_refused_creation_leaves_nothing_to_look_for(server: fake.FakeServer):
    server.forbidden.add(CREATE)
    with pytest.raises(KubeClusterError, match='verbs: \\["create"\\]'):
        KubeCluster("mine")
    assert at_exit.clusters == []
    assert not [request for request in server.requests if request.startswith("DELETE")]


# ---------------------------------------------------------------------- close, names, equality, descriptors


@pytest.mark.parametrize(("name", "filled"), [(None, "ada-0a0a0"), ("etl-{uuid}", "etl-0a0a0")])
def test_a_cluster_with_a_new_name_is_never_somebody_elses(
    server: fake.FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    filled: str,
):
    monkeypatch.setattr(resource.secrets, "token_hex", lambda _: "0a0a0a")
    monkeypatch.setenv("LOGNAME", "ada")
    server.clusters[filled] = fake.cluster(filled, "cpu")
    with pytest.raises(KubeClusterError, match="exists already"):
        KubeCluster(name, quiet=True, timeout=1)
    assert filled in server.clusters
    assert at_exit.clusters == []


def test_close_with_a_time_limit_waits_until_the_pods_are_gone(operated: fake.FakeServer):  # noqa: F811
    cluster = KubeCluster("mine", quiet=True)
    eventually(lambda: any(each["metadata"]["name"].startswith("mine") for each in operated.pods), "its pod")
    (pod,) = [each for each in operated.pods if each["metadata"]["name"].startswith("mine")]
    closing = threading.Thread(target=lambda: cluster.close(timeout="60s"))
    closing.start()
    eventually(lambda: gone(operated), "the resource's deletion")
    steadily(closing.is_alive, "it waits for the pod", seconds=1)
    operated.pods.remove(pod)
    closing.join(60)
    assert not closing.is_alive()


async def test_close_with_a_time_limit_says_what_is_left(operated: fake.FakeServer):  # noqa: F811
    asked = f"DELETE {fake.CLUSTERS}/mine"
    clock = Clock(monotonic=lambda: time.monotonic() + (60.0 if asked in operated.requests else 0.0))
    cluster = await KubeCluster("mine", quiet=True, asynchronous=True, timing=replace(PATIENT, clock=clock))
    with pytest.raises(KubeClusterError, match=r"not gone within 60 s: there are still: pod mine-scheduler-00000"):
        await cluster.close(timeout=60)
    assert gone(operated)


def test_clusters_are_equal_by_server_namespace_and_name(demo: fake.FakeServer):
    one, same = KubeCluster.from_name("demo"), KubeCluster.from_name("demo")
    with one, same, fake.FakeServer() as elsewhere:
        elsewhere.clusters["demo"] = fake.cluster("demo", "cpu")
        elsewhere.pods, elsewhere.targets = demo.pods, demo.targets
        path = Path(os.environ["KUBECONFIG"]).with_name("elsewhere")
        path.write_text(yaml.safe_dump(elsewhere.kubeconfig()))
        with KubeCluster.from_name("demo", kubeconfig=str(path)) as other:
            assert one == same
            assert hash(one) == hash(same)
            assert one != other
            assert len({one, same, other}) == 2
            same._resource.namespace = "another"
            assert one != same


def _descriptors() -> list[str]:
    found = []
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing
            found.append(str(number.readlink()))
    return sorted(found)


def test_opening_and_closing_leaks_no_descriptor(operated: fake.FakeServer):  # noqa: F811
    def cycle() -> None:
        KubeCluster("mine", quiet=True, compare_versions=False).close()
        operated.pods.clear()

    cycle()  # what a process opens once
    gc.collect()
    gc.disable()  # it would close what is forgotten, sooner or later
    try:
        before = _descriptors()
        for _ in range(20):
            cycle()
        # The scheduler and its workers are in this process, too, and now and then open a connection that they keep.
        fewer_than_one_each = len(before) + 20
        eventually(lambda: len(_descriptors()) < fewer_than_one_each, "none is left", show=_descriptors)
    finally:
        gc.enable()


def test_a_fake_server_leaks_none():
    before = _descriptors()
    for _ in range(3):
        with fake.FakeServer():
            pass
    assert len(_descriptors()) <= len(before)
