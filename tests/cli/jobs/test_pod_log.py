"""A log over connections that break: each line once, none missing, whatever is cut where."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.kube import pod_log
from gpudask.kubecluster.kube.pod_log import PodLog
from gpudask.kubecluster.kube.server import Server
from tests.cli.jobs.job_server import BEGIN, JobServer

SAME = "the same line"


@pytest.fixture
def pod(server: JobServer) -> str:
    """A runner that has written thirty lines, some of them alike, over three seconds."""
    server.add_job("train")
    return server.begin("train", 1, *(SAME if number % 3 else f"line {number}" for number in range(30)))


@asynccontextmanager
async def opened(pod: str, silence_seconds: float = 30.0) -> AsyncIterator[PodLog]:
    connection = await Server.connect(None)
    try:
        yield PodLog(connection, pod, "main", silence_seconds=silence_seconds)
    finally:
        await connection.close()


async def broken(log: PodLog) -> list[str]:
    """What comes until the connection breaks."""
    lines: list[str] = []

    async def read() -> None:
        async for line in log.follow():
            lines.append(line)  # noqa: PERF401 - those before the break

    with pytest.raises(KubeClusterError) as raised:
        await read()
    assert raised.value.unanswered
    return lines


def written(server: JobServer, pod: str) -> list[str]:
    return [line for _, line in server.lines[pod]]


@pytest.mark.parametrize("first", [0, 1, 41, 42, 43, 200, 777])
async def test_a_log_that_breaks_in_the_middle_is_printed_whole_and_once(server: JobServer, pod: str, first: int):
    server.cuts[pod] = [first, first + 100]
    async with opened(pod) as log:
        lines = [*await broken(log), *await broken(log)]
        server.write(pod, "last", SAME)
        server.end(pod, 0)
        lines += [line async for line in log.follow()]
        lines += [line async for line in log.rest()]

    assert lines == written(server, pod)


async def test_half_a_line_at_a_stream_that_ends_is_not_a_line(server: JobServer, pod: str):
    server.ends[pod] = [100]
    async with opened(pod) as log:
        begun = [line async for line in log.follow()]
        server.end(pod, 0)
        rest = [line async for line in log.rest()]

    assert 0 < len(begun) < 30
    assert [*begun, *rest] == written(server, pod)


async def test_lines_whose_times_go_back_are_neither_lost_nor_repeated(server: JobServer, pod: str):
    server.lines[pod] = [(BEGIN + 5.2, "out"), (BEGIN + 4.9, "err"), (BEGIN + 5.1, "out"), (BEGIN - 60, "clock set")]
    server.cuts[pod] = [10_000]
    async with opened(pod, silence_seconds=0.3) as log:
        first = await broken(log)
        server.lines[pod] += [(BEGIN - 60, "clock set"), (BEGIN - 59, "on")]
        server.end(pod, 0)
        rest = [line async for line in log.rest()]

    assert (first, rest) == (["out", "err", "out", "clock set"], ["clock set", "on"])


async def test_it_reads_again_from_the_last_line_and_not_from_the_beginning(server: JobServer, pod: str):
    server.cuts[pod] = [10_000]
    async with opened(pod, silence_seconds=0.3) as log:
        assert len(await broken(log)) == 30
        server.end(pod, 0)
        assert [line async for line in log.rest()] == []

    first, again = server.log_requests
    assert "sinceTime" not in first
    assert again["sinceTime"] == "2027-01-15T08:00:01Z", "a second before that of the line at 2.9 s"
    assert (again["container"], again["timestamps"]) == ("main", "true")


async def test_a_connection_on_which_nothing_comes_is_taken_for_broken(server: JobServer, pod: str):
    async with opened(pod, silence_seconds=0.3) as log:
        assert len(await broken(log)) == 30


async def test_a_carriage_return_ends_no_line(server: JobServer, pod: str):
    server.lines[pod] = [(BEGIN, "10%\r20%\u2028\x0b\x8530%")]
    server.end(pod, 0)
    async with opened(pod) as log:
        assert [line async for line in log.rest()] == ["10%\r20%\u2028\x0b\x8530%"]


async def test_a_line_without_end_is_cut(server: JobServer, pod: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pod_log, "MOST_LINE_BYTES", 1000)
    server.lines[pod] = [(BEGIN, "x" * 1_000_000), (BEGIN, "next")]
    server.cuts[pod] = [500_000]
    async with opened(pod) as log:
        assert await broken(log) == []
        server.end(pod, 0)
        cut, following = [line async for line in log.rest()]

    assert len(cut) <= 1000
    assert (cut[:10], cut[-2:], following) == ("x" * 10, "x\u2026", "next")


async def test_what_has_no_time_is_a_line_too(server: JobServer, pod: str, monkeypatch: pytest.MonkeyPatch):
    raw = "2027-13-45T99:00:00Z no time\nunable to retrieve container logs\n0001-01-01T00:00:00Z early\n"
    monkeypatch.setattr("tests.cli.jobs.job_server._stamped", lambda _, line: line.encode())
    server.lines[pod] = [(BEGIN, raw)]
    server.end(pod, 0)
    async with opened(pod) as log:
        read = [line async for line in log.rest()]
        assert [line async for line in log.rest()] == []

    assert read == ["no time", "unable to retrieve container logs", "early"]
