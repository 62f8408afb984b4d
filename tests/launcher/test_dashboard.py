"""A scheduler and a worker import their dashboard's pages when somebody asks for one: real ones, by Dask's commands."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpudask.launcher.script import dashboard
from tests.eventually import eventually
from tests.releases.environment import NEWEST, OLDEST, PRELOAD, Environment

pytestmark = [pytest.mark.dask, pytest.mark.registry]
NO_BOKEH = 'raise ImportError("No module named bokeh, on purpose")\n'
ENVIRONMENTS: dict[str, Callable[[], Environment]] = {
    "images": Environment.of_images,
    OLDEST: lambda: Environment.ensure(OLDEST, PRELOAD),
    NEWEST: lambda: Environment.ensure(NEWEST, PRELOAD),
}


@dataclass(frozen=True)
class Server:
    """A scheduler or worker that was started; `log`: what it writes."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> str:
        """Wait for what matches in the log: its only group."""
        return eventually(lambda: re.search(pattern, self.log.read_text()), pattern, show=self.log.read_text).group(1)

    @property
    def address(self) -> str:
        return self.said(r"Scheduler at: +(\S+)")

    def get(self, path: str) -> tuple[int, str, str]:
        """Status, the place that it sends to, and text of an answer; redirects are not followed."""
        port = int(self.said(r"dashboard at: +\S+?:(\d+)"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Location", ""), answer.read().decode()

    def follow(self, path: str) -> tuple[int, str]:
        """Status and text of an answer; redirects are followed, as a browser does."""
        for _ in range(5):
            status, place, text = self.get(path)
            if not place:
                return status, text
            path = place if place.startswith("/") else f"/{place}"
        raise AssertionError(f"redirects have no end: {path}")

    @property
    def has_bokeh(self) -> bool:
        """Whether it has imported what draws, as Python's `-v` tells."""
        return "\nimport 'bokeh" in self.log.read_text(errors="replace")


@dataclass(frozen=True)
class Commands:
    """Dask's commands in an environment."""

    python: Path
    folder: Path

    @contextlib.contextmanager
    def run(self, kind: str, *options: str, without_bokeh: bool = False) -> Iterator[Server]:
        """`dask KIND`, with the text that imports pages when asked."""
        log = self.folder / f"{kind}.log"
        command = [self.python, "-v", "-m", "dask", kind, *options, "--no-dashboard", "--preload", dashboard()]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        if without_bokeh:
            (self.folder / "bokeh.py").write_text(NO_BOKEH)
            env["PYTHONPATH"] = str(self.folder)
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=env, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield Server(process, log)
        finally:
            process.kill()
            process.wait()

    def scheduler(self, **given: bool) -> contextlib.AbstractContextManager[Server]:
        return self.run("scheduler", "--port", "0", "--host", "127.0.0.1", "--dashboard-address", ":0", **given)

    def worker(self, scheduler: Server, **given: bool) -> contextlib.AbstractContextManager[Server]:
        return self.run("worker", scheduler.address, "--no-nanny", "--host", "127.0.0.1", **given)


@pytest.fixture(params=ENVIRONMENTS)
def commands(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    return Commands(ENVIRONMENTS[request.param]().python, tmp_path)


@pytest.fixture
def of_images(tmp_path: Path) -> Commands:
    return Commands(Environment.of_images().python, tmp_path)


def test_pages_are_imported_when_somebody_asks_for_one(commands: Commands):
    with commands.scheduler() as scheduler, commands.worker(scheduler) as worker:
        worker.said("(Registered) to")
        for server in scheduler, worker:
            assert server.get("/health")[0] == 200
            assert server.get("/metrics")[0] == 200
            assert not server.has_bokeh
            with ThreadPoolExecutor() as browsers:  # who comes while they are imported waits for them, too
                answers = [*browsers.map(server.follow, ["/status"] * 3)]
            assert [(status, "Dask" in text) for status, text in answers] == [(200, True)] * 3
            assert server.has_bokeh
            assert server.get("/status")[0] == 200
            assert server.get("/nothing")[0] == 404
        assert scheduler.follow("/")[0] == 200
        assert scheduler.follow("/individual-plots.json")[0] == 200


def test_the_first_request_leads_to_no_other_host(of_images: Commands):
    with of_images.scheduler() as scheduler:
        status, place, _ = scheduler.get("//example.com/status")
        assert (status, place) == (302, "/example.com/status")


def test_without_bokeh_the_scheduler_says_so_as_dask_does(of_images: Commands):
    with (
        of_images.scheduler(without_bokeh=True) as scheduler,
        of_images.worker(scheduler, without_bokeh=True) as worker,
    ):
        worker.said("(Registered) to")
        assert "Dask needs bokeh" in scheduler.follow("/status")[1]
        assert "Dask needs bokeh" in scheduler.follow("/")[1]
        assert worker.follow("/status")[0] == 404
        for server in scheduler, worker:
            assert server.get("/health")[0] == 200
            server.said("(There is no dashboard: No module named bokeh, on purpose)")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0


def test_where_a_release_is_not_as_it_expects_there_is_no_dashboard_and_all_else(
    of_images: Commands, monkeypatch: pytest.MonkeyPatch
):
    text = dashboard()
    known = "import get_handlers"
    assert known in text
    monkeypatch.setattr(f"{__name__}.dashboard", lambda: text.replace(known, "import no_handlers"))
    with of_images.scheduler() as scheduler, of_images.worker(scheduler) as worker:
        worker.said("(Registered) to")
        assert scheduler.get("/health")[0] == 200
        assert scheduler.get("/status")[0] == 404
        scheduler.said("(There is no dashboard)")
