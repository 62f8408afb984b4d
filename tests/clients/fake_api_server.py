"""An API server in memory, below the operator's own client: it keeps objects, and fails or holds what a test names."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from kubernetes.aio import client

from gpudask.api import Json
from gpudask.clients.kubernetes import Kubernetes

_TRUST = ssl.create_default_context()


@dataclass
class Answer:
    """An answer of the server; as much of aiohttp's as the client reads."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    async def read(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def response(self) -> Any:
        """Itself, as what comes in chunks: all in one."""
        return self

    @property
    def content(self) -> Any:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield await self.read()

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Fault:
    """What happens to requests of `method` whose path ends with or has `path` in it, `times` times.

    `answer`: None leaves it to the server. `until`: the request hangs so long.
    """

    method: str
    path: str
    answer: Answer | None = None
    until: asyncio.Event | None = None
    times: float = float("inf")
    name: str = ""
    met: int = 0


def refusal(status: int, message: str, reason: str = "", **headers: str) -> Answer:
    """A `Status` object, as the API server's refusals are."""
    return Answer(status, {"kind": "Status", "code": status, "reason": reason, "message": message}, headers)


BUSY = refusal(503, "the server is starting", "ServiceUnavailable")
# Of an object that is there, and has not changed.
UNTRUE = {
    "conflict": refusal(409, "the object has been modified", "Conflict"),
    "not found": refusal(404, "not found", "NotFound"),
}


class FakeApiServer(Kubernetes):
    """`objects`: what exists, by path. `log`: requests in the order in which they came, as `POST pods demo-0`."""

    def __init__(self) -> None:
        with patch("ssl.create_default_context", lambda **_: _TRUST):  # all certificates of this machine take 5 ms
            super().__init__(client.Configuration())
        self.objects: dict[str, Json] = {}
        self.log: list[str] = []
        self.faults: list[Fault] = []
        self.seconds = 0.0  # that each request takes
        self.on_request: Callable[[str], None] = lambda _: None
        self._versions = 0

    def fail(self, method: str, path: str, answer: Answer | None = None, **rest: Any) -> Fault:
        """Let requests fail, or hang, from now on."""
        fault = Fault(method, path, answer, **rest)
        self.faults.append(fault)
        return fault

    def mend(self, *faults: Fault) -> None:
        """Let them fail no more; all of them, where none is named."""
        self.faults = [fault for fault in self.faults if faults and fault not in faults]

    def put(self, path: str, body: Json) -> Json:
        """Store an object as it is then."""
        self._versions += 1
        metadata = {"uid": f"uid-{self._versions}", **body.get("metadata", {}), "resourceVersion": str(self._versions)}
        self.objects[path] = {**body, "metadata": metadata}
        return self.objects[path]

    def names(self, plural: str) -> list[str]:
        """The objects of a kind, by name."""
        return sorted(path.rpartition("/")[2] for path in self.objects if f"/{plural}/" in path)

    async def _send(
        self, method: str, path: str, query: dict[str, str], *, body: Any = None, content_type: str = "", **_: Any
    ) -> Any:
        name = body["metadata"]["name"] if method == "POST" else path.rpartition("/")[2]
        plural = path.split("/")[-1 if method == "POST" else -2]
        said = f"{method} {plural} {name}"
        self.log.append(said)
        self.on_request(said)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        for fault in list(self.faults):
            if fault.method == method and fault.path in path and fault.name in name and fault.met < fault.times:
                fault.met += 1
                if fault.until is not None:
                    await fault.until.wait()
                if fault.answer is not None:
                    return fault.answer
        if query.get("dryRun"):
            return Answer(201, body)
        if "strategic" in content_type and path in self.objects:
            change = self._refer if "ownerReferences" in body["metadata"] else self._lift
            return change(path, self.objects[path], body)
        if method == "PUT" and path in self.objects:
            return Answer(200, self.put(path, body))
        return self._answer(method, path, name, body)

    def _answer(self, method: str, path: str, name: str, body: Any) -> Answer:
        if method == "POST":
            if f"{path}/{name}" in self.objects:
                return refusal(409, f'"{name}" already exists', "AlreadyExists")
            return Answer(201, self.put(f"{path}/{name}", body))
        key = path.removesuffix("/status")
        found = self.objects.get(key)
        if found is None and method == "PATCH" and isinstance(body, dict) and "apiVersion" in body:
            return Answer(201, self.put(key, body))  # server-side apply makes what is missing
        if found is None:
            return refusal(404, f'"{name}" not found', "NotFound")
        if method == "DELETE":
            return self._delete(key, found, body or {})
        return self._patch(key, path, found, body) if method == "PATCH" else Answer(200, found)

    def _refer(self, path: str, found: Json, body: Json) -> Answer:
        """A strategic merge patch of owner references, which are known by their uid."""
        if body["metadata"]["uid"] != found["metadata"]["uid"]:
            return refusal(409, "the uid in the object to be updated does not match", "Conflict")
        references = {item["uid"]: item for item in found["metadata"].get("ownerReferences", ())}
        for item in body["metadata"]["ownerReferences"]:
            if item.get("$patch") == "delete":
                references.pop(item["uid"], None)
            else:
                references[item["uid"]] = item
        return Answer(200, self.put(path, _merged(found, {"metadata": {"ownerReferences": [*references.values()]}})))

    def _lift(self, path: str, found: Json, body: Json) -> Answer:
        """A strategic merge patch of scheduling gates, which are known by their name."""
        if body["metadata"]["uid"] != found["metadata"]["uid"]:
            return refusal(409, "the uid in the object to be updated does not match", "Conflict")
        lifted = {item["name"] for item in body["spec"]["schedulingGates"] if item.get("$patch") == "delete"}
        gates = [item for item in found["spec"].get("schedulingGates", ()) if item["name"] not in lifted]
        return Answer(200, self.put(path, _merged(found, {"spec": {"schedulingGates": gates}})))

    def _delete(self, key: str, found: Json, body: Json) -> Answer:
        if body.get("preconditions", {}).get("uid") not in (None, found["metadata"]["uid"]):
            return refusal(409, "the UID in the precondition does not match", "Conflict")
        if body.get("preconditions", {}).get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
            return refusal(409, "the ResourceVersion in the precondition does not match", "Conflict")
        return Answer(200, self.objects.pop(key))

    def _patch(self, key: str, path: str, found: Json, body: Any) -> Answer:
        if not path.endswith("/status"):
            return Answer(200, self.put(key, _merged(found, body)))
        test, version, write = body
        if test["value"] != found["metadata"]["uid"]:
            return refusal(422, "the test of the patch failed", "Invalid")
        if version["value"] != found["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", "Conflict")
        return Answer(200, self.put(key, found | {"status": write["value"]}))


def _merged(old: Json, new: Json) -> Json:
    """A JSON merge patch."""
    found = dict(old)
    for key, value in new.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found
