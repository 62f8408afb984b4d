"""Health checks of the parts: a part's health page, or an answer of the service that it gives."""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 2
_DNS_PORT = 53
_QUERY_ID = 0x6764
_RECURSION_DESIRED = 0x0100
_TYPE_A, _CLASS_IN = 1, 1
_CODE_MASK = 0x000F
_CODES = {2: "server failure", 3: "no such name", 5: "refused"}


def page_blocker(url: str) -> str | None:
    """Tell why the health page `url` does not say that all is well; None when it does.

    Certificates are not checked: the parts make their own for a page that listens on this machine alone.
    """
    address = urlsplit(url)
    host = address.netloc
    connection = (
        http.client.HTTPSConnection(host, timeout=_TIMEOUT_SECONDS, context=_unchecked())
        if address.scheme == "https"
        else http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
    )
    try:
        connection.request("GET", address.path)
        response = connection.getresponse()
        said = response.read().decode(errors="replace")[-300:]
    except (OSError, http.client.HTTPException) as error:
        return f"{url} does not answer: {error}"
    finally:
        connection.close()
    return None if response.status == http.HTTPStatus.OK else f"{url} says {response.status}: {said}"


def name_blocker(server: str, name: str, address: str) -> str | None:
    """Tell why the name server `server` does not say that `name` has the IPv4 `address`; None when it does."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(_TIMEOUT_SECONDS)
            connection.connect((server, _DNS_PORT))
            connection.send(_question(name))
            answer = connection.recv(512)
    except OSError as error:
        return f"the name server {server} does not answer: {error}"
    code = struct.unpack_from("!H", answer, 2)[0] & _CODE_MASK
    if code:
        return f"the name server {server} does not know {name}: {_CODES.get(code, code)}"
    if socket.inet_aton(address) not in answer:
        return f"the name server {server} says that {name} is not {address}"
    return None


def _unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _question(name: str) -> bytes:
    """Ask for the IPv4 addresses of `name`, as RFC 1035 section 4.1 has it."""
    header = struct.pack("!6H", _QUERY_ID, _RECURSION_DESIRED, 1, 0, 0, 0)
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.rstrip(".").split("."))
    return header + labels + b"\0" + struct.pack("!2H", _TYPE_A, _CLASS_IN)
