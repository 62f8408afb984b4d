"""A container's log, followed over connections that break: each line once, and none is lost that the kubelet has.

A line's time, which the kubelet puts before it, says from where to read again. It goes by whole seconds there, lines of
standard output and standard error may stand in another order than their times, and two may have the same: so a second
more is read than is needed, and what was read before is known by all of a line, its time and its text.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from gpudask.kubecluster.kube.request import Connection

SILENCE_SECONDS = 30.0
"""After which a connection is taken for broken: a laptop that slept hears of no end. To read anew costs one request."""
MOST_LINE_BYTES = 1 << 20
"""What is longer is cut: a program may write without ever ending a line."""
_OVERLAP_SECONDS = 1.0
_REMEMBERED = 50_000  # lines; whoever writes more in the last second or two may see some of them twice
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ")
_LATEST = 253402300799.0  # the end of the year 9999: after it there are no times


class PodLog:
    """The log of one container of a pod.

    Args:
        server: whose namespace is asked.
        pod: its name.
        container: its name.
        silence_seconds: after which a connection on which nothing comes is taken for broken.
    """

    def __init__(
        self, server: Connection, pod: str, container: str, *, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self._server, self._pod, self._container = server, pod, container
        self._silence_seconds = silence_seconds
        self._last: float | None = None  # the time of the line that was read last
        self._read: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)

    async def follow(self) -> AsyncGenerator[str, None]:
        """The lines that were not read yet, as they come. At its end the container may have ended, or the server did.

        Raises:
            KubeClusterError: the server refuses, the connection breaks, or nothing came for `silence_seconds`.
        """
        async with aclosing(self._lines(follow=True)) as lines:
            async for line in lines:
                yield line

    async def rest(self) -> AsyncGenerator[str, None]:
        """The lines of a container that has ended which were not read yet.

        Raises:
            KubeClusterError: the server refuses, or the connection breaks.
        """
        async with aclosing(self._lines(follow=False)) as lines:
            async for line in lines:
                yield line

    async def _lines(self, *, follow: bool) -> AsyncGenerator[str, None]:
        params = {"container": self._container, "timestamps": "true"} | ({"follow": "true"} if follow else {})
        again: Counter[int] = Counter()
        if self._last is not None:
            since = int(self._last - _OVERLAP_SECONDS)
            params["sinceTime"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            again.update(digest for time, digest in self._read if time >= since)
        read = self._server.chunks(
            "get",
            "pods",
            self._pod,
            subresource="log",
            params=params,
            silence_seconds=self._silence_seconds if follow else 0,
        )
        async with aclosing(read) as chunks:
            # What has no end may be half of a line when a stream ends that is followed: it comes again.
            async for line in split_lines(chunks, keep_rest=not follow):
                time, text = _parse(line)
                self._last = self._last if time is None else time
                digest = hash(line)
                if again[digest]:
                    again[digest] -= 1
                    continue
                self._read.append((self._last or 0.0, digest))  # one without a time is as old as the one before
                yield text


async def split_lines(chunks: AsyncIterator[bytes], *, keep_rest: bool = True) -> AsyncIterator[bytes]:
    """The lines, which end with a line feed and nothing else; each cut to little more than `MOST_LINE_BYTES`.

    `keep_rest`: what has no end is a line, too.
    """
    begun = b""
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun = _joined(begun, first)
        for part in others:
            yield begun
            begun = _joined(b"", part)
    if begun and keep_rest:
        yield begun


def _joined(begun: bytes, part: bytes) -> bytes:
    return begun if len(begun) > MOST_LINE_BYTES else (begun + part)[: MOST_LINE_BYTES + 1]


def _parse(line: bytes) -> tuple[float | None, str]:
    """The time of a line in seconds since 1970, None where it has none, and its text."""
    text, time = line, None
    if match := _STAMP.match(line):
        text = line[match.end() :]
        with suppress(ValueError, OverflowError):
            stamp = datetime.fromisoformat(match[1].decode()).timestamp()
            time = min(max(stamp, _OVERLAP_SECONDS), _LATEST)
    return time, decoded(text, is_cut=len(line) > MOST_LINE_BYTES)


def decoded(line: bytes, *, is_cut: bool) -> str:
    """The text of a line, which says so where it was cut."""
    text = line.decode(errors="replace")
    return f"{text[:-1]}\u2026" if is_cut else text
