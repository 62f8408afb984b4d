"""Health pages and name servers: None when they say that all is well, else what they said."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from local.control_plane import health
from local.control_plane.health import name_blocker, page_blocker


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that answers may not run for seconds, where the machine is busy."""
    monkeypatch.setattr(health, "_TIMEOUT_SECONDS", 60)


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/well" else 503)
        self.end_headers()
        self.wfile.write(b"not yet")

    def log_message(self, *_: object) -> None:
        """Say nothing: it is a test."""


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Pages) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_page_that_is_well_blocks_nothing(pages: str):
    assert page_blocker(f"{pages}/well") is None


def test_a_page_that_is_not_well_is_quoted(pages: str):
    assert page_blocker(f"{pages}/ill") == f"{pages}/ill says 503: not yet"


def test_nobody_there_is_told_with_the_address():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert f"127.0.0.1:{port}/well does not answer" in str(page_blocker(f"http://127.0.0.1:{port}/well"))


@contextmanager
def _name_server(
    monkeypatch: pytest.MonkeyPatch, *, code: int = 0, address: str = "10.96.0.1"
) -> Iterator[list[bytes]]:
    """Answer one question, which is then in the list."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(60)
        monkeypatch.setattr(health, "_DNS_PORT", server.getsockname()[1])

        def answer() -> None:
            question, sender = server.recvfrom(512)
            asked.append(question)
            record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton(address)
            header = question[:2] + struct.pack("!5H", 0x8180 | code, 1, 1, 0, 0)
            server.sendto(header + question[12:] + record, sender)

        thread = threading.Thread(target=answer)
        thread.start()
        yield asked
        thread.join()


def test_a_name_with_the_right_address_blocks_nothing(monkeypatch: pytest.MonkeyPatch):
    with _name_server(monkeypatch) as asked:
        assert name_blocker("127.0.0.1", "a.bc", "10.96.0.1") is None
    assert asked[0][12:] == b"\x01a\x02bc\x00\x00\x01\x00\x01"


def test_another_address_is_told(monkeypatch: pytest.MonkeyPatch):
    with _name_server(monkeypatch, address="10.96.0.2"):
        assert "a.bc is not 10.96.0.1" in str(name_blocker("127.0.0.1", "a.bc", "10.96.0.1"))


def test_an_unknown_name_is_told(monkeypatch: pytest.MonkeyPatch):
    with _name_server(monkeypatch, code=3):
        assert "does not know a.bc: no such name" in str(name_blocker("127.0.0.1", "a.bc", "10.96.0.1"))


def test_a_silent_name_server_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "_TIMEOUT_SECONDS", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setattr(health, "_DNS_PORT", silent.getsockname()[1])
        assert "does not answer" in str(name_blocker("127.0.0.1", "a.bc", "10.96.0.1"))
