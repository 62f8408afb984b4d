"""The few API requests that bringing a cluster up takes, without a client library or kubectl."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from local.control_plane.pki import Pki
from local.errors import LocalClusterError

_REFUSED = 400


@dataclass(frozen=True)
class KubeApi:
    """An API server, spoken to as the party `identity`; each of its answers may take `answer_seconds`.

    `user`: whom that party impersonates; empty: nobody.

    Each request raises LocalClusterError where the server does not answer, or answers that it will not.
    """

    server: str
    pki: Pki
    identity: str = "admin"
    answer_seconds: float = 10
    user: str = ""

    def blocker(self) -> str | None:
        """Tell why the server is not ready; None when it is."""
        try:
            status, body = self._exchange("GET", "/readyz")
        except LocalClusterError as error:
            return str(error)
        return None if status == http.HTTPStatus.OK else f"/readyz says {status}: {body.decode()[-300:]}"

    def get(self, path: str) -> Any | None:
        """Read an object; None where there is none."""
        status, body = self._exchange("GET", path)
        if status == http.HTTPStatus.NOT_FOUND:
            return None
        return self._checked("GET", path, status, body)

    def apply(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Create an object or bring it to `manifest`, by server-side apply."""
        query = "?fieldManager=gpudask-local&force=true"
        self._send("PATCH", path + query, yaml.safe_dump(dict(manifest)), "application/apply-patch+yaml")

    def dry_run(self, path: str, manifest: str) -> Any:
        """Ask for the object of a manifest in YAML without making it, with the checks of `kubectl apply`.

        What the server answers: the object, or the Status that refuses it.
        """
        headers = {"Content-Type": "application/yaml", "Accept": "application/json"}
        _, answer = self._exchange("POST", path + "?dryRun=All&fieldValidation=Strict", manifest, headers)
        return json.loads(answer)

    def answer(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send a request as it is. What the server answers: the object, or the Status that tells of it."""
        sent = None if body is None else json.dumps(body)
        return json.loads(self._exchange(method, path, sent, {"Content-Type": content_type})[1])

    def json_patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Change parts of an object."""
        self._send("PATCH", path, json.dumps(operations), "application/json-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object; one that is gone is fine."""
        status, body = self._exchange("DELETE", path)
        if status != http.HTTPStatus.NOT_FOUND:
            self._checked("DELETE", path, status, body)

    def _send(self, method: str, path: str, body: str, content_type: str) -> Any:
        status, answer = self._exchange(method, path, body, {"Content-Type": content_type})
        return self._checked(method, path, status, answer)

    def _exchange(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=self.pki.authority)
        context.load_cert_chain(self.pki.certificate(self.identity), self.pki.key(self.identity))
        address = urlsplit(self.server)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=self.answer_seconds, context=context
        )
        try:
            impersonation = {"Impersonate-User": self.user} if self.user else {}
            connection.request(method, path, body, {"User-Agent": "gpudask-local", **impersonation, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LocalClusterError(f"{self.server} does not answer: {error}") from error
        finally:
            connection.close()

    @staticmethod
    def _checked(method: str, path: str, status: int, body: bytes) -> Any:
        if status >= _REFUSED:
            raise LocalClusterError(f"the API server answered {method} {path} with {status}: {body.decode()[:500]}")
        return json.loads(body)
