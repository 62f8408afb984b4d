"""A TCP proxy between a program and a server, which breaks when a test says so: a bad network."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 64 * 1024


@dataclass
class Proxy:
    """A proxy that listens at 127.0.0.1:`port`."""

    port: int
    _open: set[socket.socket] = field(default_factory=set)

    def cut(self) -> int:
        """End every connection that is open, and return how many those were; new ones are passed on as before."""
        cut = list(self._open)
        for each in cut:
            with contextlib.suppress(OSError):  # it ended just now
                each.shutdown(socket.SHUT_RDWR)
        return len(cut)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def proxy(to: tuple[str, int]) -> Iterator[Proxy]:
    """Listen on a free port of this machine, and pass each connection on."""

    class Passing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            made._open.add(self.request)
            try:
                with socket.create_connection(to) as onward:
                    threading.Thread(target=_copy, args=(onward, self.request), daemon=True).start()
                    _copy(self.request, onward)
            finally:
                made._open.discard(self.request)

    with _Server(("127.0.0.1", 0), Passing) as server:
        made = Proxy(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            made.cut()
            server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
