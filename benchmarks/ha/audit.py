"""The API server's audit log: which operator asked for what."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True)
class Request:
    """One request. `credential`: whose; `resource` with its subresource, as `pods/status`; `name` may be empty."""

    credential: str
    verb: str
    resource: str
    name: str


class Audit:
    """The log, from one place in it on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """Where it ends now."""
        return self._path.stat().st_size

    def since(self, mark: int) -> list[Request]:
        """What was answered since then; a watch when it began."""
        with self._path.open("rb") as file:
            file.seek(mark)
            text = file.read()
        return [_request(json.loads(line)) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def extra(requests: Iterable[Request], credential: str) -> list[Request]:
    """What this operator asked for beside its watches and the Lease."""
    return [
        request
        for request in requests
        if request.credential == credential and request.verb != "watch" and request.resource != "leases"
    ]


def _request(event: dict[str, Any]) -> Request:
    what = event.get("objectRef", {})
    resource = "/".join(part for part in (what.get("resource", ""), what.get("subresource", "")) if part)
    credentials = event["user"].get("extra", {}).get(_CREDENTIAL, [""])
    name = what.get("name", "")
    return Request(credentials[0], event["verb"], resource or event["requestURI"], name)
