"""Credential plugins: what they are told, when they are started, and for whom."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpudask import KubeClusterError
from gpudask.kubecluster.forward.port_forward import PortForward
from gpudask.kubecluster.kube import plugin as plugins
from gpudask.kubecluster.kube.config import Choice
from gpudask.kubecluster.kube.plugin import Plugin, grant_of, time_of
from gpudask.kubecluster.kube.server import Server
from gpudask.kubecluster.kube.session import Purpose, requests_for
from gpudask.kubecluster.timing import Clock, Timing
from tests.kubecluster import fake_server as fake
from tests.kubecluster.conftest import until
from tests.kubecluster.kube.test_credentials import giving, with_plugin


class Login:
    """A plugin that notes each of its starts, and waits for `gate` to be there where it is to."""

    def __init__(self, server: fake.FakeServer, folder: Path, **section: Any) -> None:
        self.server, self.folder = server, folder
        self.token, self.starts, self.gate = folder / "token", folder / "starts", folder / "gate"
        script = f"echo start >> {self.starts}\nwhile [ ! -e {self.gate} ]; do sleep 0.02; done\n"
        self.open()
        self.renew("first")
        with_plugin(server, folder, script + giving(self.token), **section)

    def open(self) -> None:
        self.gate.touch()

    def renew(self, token: str) -> None:
        self.token.write_text(token)
        self.server.token = token

    def answer_from_start(self, number: int, token: str) -> None:
        """Give none before the plugin's start of that number, and this one from then on."""
        self.token.write_text("")
        early = f"echo start >> {self.starts}\nwhile [ ! -e {self.gate} ]; do sleep 0.02; done\n"
        late = f"if [ $(wc -l < {self.starts}) -ge {number} ]; then printf {token} > {self.token}; fi\n"
        with_plugin(self.server, self.folder, early + late + giving(self.token))
        self.server.token = token

    def end_token(self) -> None:
        """The server takes another than the plugin gives."""
        self.server.token = "another"

    @property
    def count(self) -> int:
        return len(self.starts.read_text().splitlines()) if self.starts.exists() else 0


async def test_a_plugin_that_takes_longer_than_its_caller_waits_is_not_begun_anew(
    server: fake.FakeServer, tmp_path: Path
):
    login = Login(server, tmp_path)
    api = await Server.connect(None)
    login.renew("second")
    login.gate.unlink()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await api.clusters()
    await until(lambda: login.count == 2, "the one of the start, and one that all three wait for")
    login.open()

    assert len(await api.clusters()) == 1
    assert login.count == 2


async def test_work_in_the_background_starts_no_plugin_and_a_person_s_next_call_does(
    server: fake.FakeServer, tmp_path: Path
):
    login = Login(server, tmp_path)
    api = await Server.connect(None)
    login.renew("second")

    with requests_for(Purpose.POLLING):
        for _ in range(3):
            with pytest.raises(KubeClusterError, match="may ask a person, so it is not started in the background"):
                await api.clusters()
    assert login.count == 1

    assert len(await api.clusters()) == 1
    with requests_for(Purpose.POLLING):
        assert len(await api.clusters()) == 1


def refuse_threads(monkeypatch: pytest.MonkeyPatch, *, but: int = 0) -> None:
    """From now on no thread is started, as while Python 3.12 ends, `but` so many."""
    start, left = threading.Thread.start, [but]

    def refuse(thread: threading.Thread) -> None:
        if left[0] <= 0:
            raise RuntimeError("can't create new thread at interpreter shutdown")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


async def test_where_python_ends_and_starts_no_thread_the_plugin_runs_all_the_same(
    server: fake.FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    login = Login(server, tmp_path)
    api = await Server.connect(None)
    login.renew("second")
    refuse_threads(monkeypatch)

    assert len(await api.clusters()) == 1
    assert login.count == 2


async def test_there_too_it_has_to_end_in_time(monkeypatch: pytest.MonkeyPatch):
    refuse_threads(monkeypatch)
    with pytest.raises(KubeClusterError, match=r"did not end within 0\.2 s"):
        await Plugin.of(choice(args=["-c", "import time; time.sleep(60)"])).ask(
            Timing(plugin_seconds=0.2), may_ask=False
        )


@pytest.mark.parametrize("threads", [0, 1], ids=["under Windows", "in the middle of its start"])
async def test_where_it_cannot_run_any_more_that_is_an_error_with_a_cure(monkeypatch: pytest.MonkeyPatch, threads: int):
    def reads_by_threads(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(plugins.subprocess.Popen, "communicate", reads_by_threads)
    refuse_threads(monkeypatch, but=threads)
    with pytest.raises(KubeClusterError, match=r"Python ends, and cannot run .* any more .*Run it by hand"):
        async with asyncio.timeout(120):
            await Plugin.of(choice(args=["-c", "import time; time.sleep(600)"])).ask(
                Timing(plugin_seconds=3600.0), may_ask=False
            )


async def test_what_keeps_a_hold_starts_a_plugin_ever_more_seldom(server: fake.FakeServer, tmp_path: Path):
    login, now = Login(server, tmp_path), [0.0]
    api = await Server.connect(None, timing=Timing(clock=Clock(monotonic=lambda: now[0])))
    login.end_token()
    starts = []

    with requests_for(Purpose.UPKEEP):
        for second in range(3600):
            now[0] = float(second)
            before = login.count
            if second % 5 == 0:
                with pytest.raises(KubeClusterError):
                    await api.clusters()
            if login.count > before:
                starts.append(second)

    assert starts == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730, 3330]


async def test_dask_that_reconnects_again_and_again_starts_one_plugin(server: fake.FakeServer, tmp_path: Path):
    """Its client does so for half a minute, while nobody may be there."""
    login = Login(server, tmp_path)
    server.pods.append(fake.scheduler_pod("demo-scheduler-00000"))
    forward = PortForward(await Server.connect(None), "demo", 8786, uid="uid-of-demo", limit_seconds=0.5)
    await forward.start(check=False)
    login.end_token()

    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()

    assert login.count == 2, "the first of them is the start's"
    assert "is not again and again in the background" in forward.trouble
    await forward.stop()


async def test_what_keeps_a_hold_gets_a_new_token(server: fake.FakeServer, tmp_path: Path):
    login = Login(server, tmp_path)
    api = await Server.connect(None)
    login.renew("second")

    with requests_for(Purpose.UPKEEP):
        assert len(await api.clusters()) == 1


async def test_a_person_waits_for_no_plugin_that_may_not_ask(server: fake.FakeServer, tmp_path: Path):
    """One that was started in the background fails; the same call then starts one that may ask."""
    login = Login(server, tmp_path)
    api = await Server.connect(None)
    login.answer_from_start(3, "second")  # whenever that is: nobody tells the test in time
    login.gate.unlink()

    async def keep() -> None:
        with requests_for(Purpose.UPKEEP):
            await api.clusters()

    background = asyncio.create_task(keep())
    await until(lambda: login.count == 2, "the plugin runs in the background")
    foreground = asyncio.create_task(api.clusters())
    await asyncio.sleep(0)
    login.open()
    with pytest.raises(KubeClusterError):
        await background

    assert len(await foreground) == 1
    assert login.count == 3


async def test_a_token_is_renewed_when_its_time_is_over_before_the_server_is_asked(
    server: fake.FakeServer, tmp_path: Path
):
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    answer = {"status": {"token": "first", "expirationTimestamp": "2026-01-01T00:10:00.123456789Z"}}
    file = tmp_path / "answer"
    file.write_text(json.dumps(answer))
    server.token = "first"
    with_plugin(server, tmp_path, f"cat {file}\n")
    api = await Server.connect(None, timing=Timing(clock=Clock(now=lambda: now[0])))
    file.write_text(json.dumps({"status": {"token": "second"}}))
    now[0] += timedelta(minutes=11)
    server.token = "second"
    server.requests.clear()

    await api.clusters()

    assert server.requests == [f"GET {fake.CLUSTERS}"], "none was refused before"


@pytest.fixture
def told(server: fake.FakeServer, tmp_path: Path) -> Callable[[], Any]:
    """What a plugin with `provideClusterInfo` found in its environment, after a connection."""
    file = tmp_path / "told"
    server.token = "t"
    script = f'printf %s "$KUBERNETES_EXEC_INFO" > {file}\necho \'{{"status": {{"token": "t"}}}}\'\n'
    with_plugin(server, tmp_path, script, provideClusterInfo=True)
    return lambda: json.loads(file.read_text())


async def test_a_plugin_is_told_of_the_server(server: fake.FakeServer, told: Callable[[], Any]):
    await Server.connect(None)

    assert told() == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": f"http://127.0.0.1:{server.port}"}},
    }


def choice(cluster: dict[str, Any] | None = None, **section: Any) -> Choice:
    plain = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    return Choice("lab", "default", cluster or {}, {"exec": plain | section})


def test_the_plugin_s_own_settings_and_the_server_s_authority_are_in_what_it_is_told():
    mine = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {
        "server": "https://one",
        "certificate-authority-data": "YQ==",
        "insecure-skip-tls-verify": True,
        "extensions": [{"name": "other", "extension": 1}, mine],
    }
    plugin = Plugin.of(choice(cluster, provideClusterInfo=True))

    told = json.loads(plugin.question(is_interactive=False))["spec"]["cluster"]

    assert told == {key: cluster[key] for key in list(cluster)[:3]} | {"config": {"audience": "x"}}
    assert "cluster" not in json.loads(Plugin.of(choice(cluster)).question(is_interactive=False))["spec"]


@pytest.fixture
def piped() -> Iterator[None]:
    """This program's standard input has something that is meant for it alone."""
    kept = os.dup(0)
    reading, writing = os.pipe()
    os.write(writing, b"for the program")
    os.close(writing)
    os.dup2(reading, 0)
    yield
    os.dup2(kept, 0)
    os.close(kept)
    os.close(reading)


async def test_a_plugin_finds_nothing_to_read_where_there_is_no_terminal(piped: None):
    script = "import json,sys; print(json.dumps({'status': {'token': 'read:' + sys.stdin.read()}}))"

    grant = await Plugin.of(choice(args=["-c", script])).ask(Timing(), may_ask=True)

    assert grant.token == "read:"


@pytest.mark.parametrize(
    ("mode", "may_ask", "gets_it"),
    [("Always", True, True), ("IfAvailable", True, True), ("Never", True, False), ("IfAvailable", False, False)],
)
async def test_a_plugin_that_may_ask_gets_the_terminal(
    mode: str, may_ask: bool, gets_it: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plugins, "_has_terminal", lambda: True)
    script = (
        "import json,os; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['interactive'];"
        "print(json.dumps({'status': {'token': str(asked)}}))"
    )

    grant = await Plugin.of(choice(args=["-c", script], interactiveMode=mode)).ask(Timing(), may_ask=may_ask)

    assert grant.token == str(gets_it)


async def test_one_that_always_asks_is_not_started_where_nobody_can_answer():
    with pytest.raises(KubeClusterError, match="it asks a person for something, and there is no terminal here"):
        await Plugin.of(choice(interactiveMode="Always")).ask(Timing(), may_ask=True)


async def test_what_a_plugin_says_while_it_waits_is_shown_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    gate = tmp_path / "gate"
    script = (
        "import os,sys,time; print('enter the code AB-12', file=sys.stderr, flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
        'print(\'{"status": {"token": "t"}}\')'
    )
    asked = asyncio.create_task(
        Plugin.of(choice(args=["-c", script])).ask(Timing(plugin_shown_seconds=0.05), may_ask=True)
    )
    seen: list[str] = []

    def is_shown() -> bool:
        seen.append(capsys.readouterr().err)
        return "enter the code AB-12" in "".join(seen)

    await until(is_shown, "its words")
    gate.touch()
    assert (await asked).token == "t"


async def test_a_plugin_is_ended_when_nobody_waits_for_it_any_more(tmp_path: Path):
    file = tmp_path / "pid"
    script = f"import os,time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    asking = asyncio.create_task(Plugin.of(choice(args=["-c", script])).ask(Timing(), may_ask=True))
    await until(lambda: file.exists() and bool(file.read_text()), "it runs")

    asking.cancel()
    await asyncio.wait([asking])

    await until(lambda: is_gone(int(file.read_text())), "it is gone")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_plugin_runs_under_a_loop_that_starts_no_processes():
    """As under Windows, where Dask's loop is asyncio's selector loop; and in any thread."""

    class NoProcesses(asyncio.SelectorEventLoop):
        async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
            raise NotImplementedError

        subprocess_shell = subprocess_exec

    granted: list[str] = []

    def run() -> None:
        script = 'print(\'{"status": {"token": "t"}}\')'
        with asyncio.Runner(loop_factory=NoProcesses) as runner:
            granted.append(runner.run(Plugin.of(choice(args=["-c", script])).ask(Timing(), may_ask=True)).token)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert granted == ["t"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"command": ""}, "its user's exec.command is ''. Write the name of a program there"),
        ({"args": "get-token"}, "its user's exec.args is 'get-token'. Write a list of words there"),
        ({"env": ["A=b"]}, r"its user's exec.env is \['A=b'\]. Write a list of `name` and `value` there"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "exec.apiVersion is .*v1alpha1'. Write client"),
        ({"interactiveMode": "Sometimes"}, "exec.interactiveMode is 'Sometimes'. Write Never, IfAvailable or Always"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(section: dict[str, Any], said: str):
    with pytest.raises(KubeClusterError, match=said):
        Plugin.of(choice(**section))


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31t12:00:00z",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00:00.0Z",
        "2026-01-31T12:00:00.000000000Z",
        "2026-01-31T13:30:00+01:30",
        "2026-01-31T12:00:00-00:00",
    ],
)
def test_a_time_may_be_written_in_each_way_of_rfc_3339(text: str):
    assert time_of(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_leap_second_is_a_time():
    assert time_of("2016-12-31T23:59:60Z") == datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-01-31", "2026-01-31T12:00:00", "2026-13-31T12:00:00Z", 12, "0001-01-01T00:00:00+23:59"],
)
def test_what_is_no_time_is_said(text: Any):
    with pytest.raises(ValueError, match=r"expirationTimestamp .* is no time"):
        grant_of(json.dumps({"status": {"token": "t", "expirationTimestamp": text}}))
