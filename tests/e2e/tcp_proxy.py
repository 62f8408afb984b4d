"""Something that listens on this machine and passes all bytes on: what an ingress controller does for websockets."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def listening(host: str, port: int, *, to: tuple[str, int]) -> Iterator[list[str]]:
    """Pass on each connection to `host:port`; the list holds the addresses of those who came."""
    came: list[str] = []

    class Passing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            came.append(self.client_address[0])
            with socket.create_connection(to) as onward:
                threading.Thread(target=_copy, args=(onward, self.request), daemon=True).start()
                _copy(self.request, onward)

    with _Server((host, port), Passing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield came
        finally:
            server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
