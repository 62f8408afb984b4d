"""An API server in memory to which requests take time, and answers too, and whose watches fall behind.

`SlowApiServer` is the server: what it does takes effect at once. `Connection` is an operator's client of it: on the way
there and back everything is delayed, or lost. A request that was sent takes effect whatever becomes of its sender.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

import aiohttp
from kubernetes.aio import client

from gpudask.api import Json
from gpudask.api.status import iso
from gpudask.clients.clock import Clock
from gpudask.clients.kubernetes import Kubernetes
from gpudask.mirror.objects import API_VERSION as MIRROR_API_VERSION
from gpudask.mirror.objects import CATEGORY, KINDS
from tests.clients.fake_api_server import UNTRUE, Answer, FakeApiServer, refusal
from tests.virtual_time import now

EPOCH: Final = 1_800_000_000.0  # when a history begins, on all clocks
MIRROR = f"/apis/{MIRROR_API_VERSION}"
NAMESPACE = "lab"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OURS = "/apis/gpudask.dev/"
_ALWAYS_FAST = ("/leases", "/secrets")  # who leads is not what this is about
_DOUBT_SECONDS = 60.0  # what is there is not said to be gone twice in so many seconds
_GRACE_SECONDS = 30.0


def wall() -> float:
    """The time, in seconds since the epoch."""
    return EPOCH + now()


def delay(chance: Random) -> float:
    """How long something is on its way, in seconds: mostly not for long."""
    kind = chance.random()
    if kind < 0.5:
        return chance.uniform(0.001, 0.02)
    if kind < 0.8:
        return chance.uniform(0.02, 0.5)
    return chance.uniform(0.5, 3.0) if kind < 0.97 else chance.uniform(3.0, 8.0)


@dataclass(frozen=True)
class Event:
    """A change, as watches tell it: the object as it is then, and as it was before."""

    at: float
    version: int
    type: str
    path: str
    body: Json
    before: Json | None


@dataclass(eq=False)
class SlowApiServer(FakeApiServer):
    """Objects, and all that ever happened to them. `note`: for the course of events.

    `is_faulty`: whether requests fail, and watches end, now and then. `tasks`: what goes on in it. `wrong`: what no
    operator may do, and one did. `admit`: the refusal of an object that is to be created; None: it may be.
    """

    chance: Random
    note: Callable[[str], None]
    is_faulty: bool = True
    admit: Callable[[Json], Answer | None] = lambda _: None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    changed: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    def __post_init__(self) -> None:
        super().__init__()
        self._doubted: dict[str, float] = {}  # by path: when it was last said, untruly, that nothing is there

    # What becomes of objects.

    def put(self, path: str, body: Json) -> Json:
        """Store an object, unless nothing of it changes: then it keeps its version, as Kubernetes has it."""
        old, metadata = self.objects.get(path), body.get("metadata", {})
        if old is not None and _content(old) == _content(body):
            return old
        if path.startswith(_OURS):
            generation = old["metadata"]["generation"] if old is not None else 0
            is_edited = old is None or old.get("spec") != body.get("spec")
            is_deleted = "deletionTimestamp" in metadata and "deletionTimestamp" not in (old or body)["metadata"]
            metadata = metadata | {"generation": generation + (is_edited or is_deleted)}
        if old is not None:
            metadata = {key: old["metadata"][key] for key in ("uid", "creationTimestamp", "namespace")} | metadata
        else:
            namespace = path.partition("/namespaces/")[2].partition("/")[0]
            metadata = {"namespace": namespace, "creationTimestamp": iso(wall(), to="seconds")} | metadata
        stored = super().put(path, body | {"metadata": metadata})
        self._tell("ADDED" if old is None else "MODIFIED", path, stored, old)
        if old is None or _owners(old) != _owners(stored):
            self._collect_later(path, stored["metadata"]["uid"])
        if "deletionTimestamp" in stored["metadata"] and not stored["metadata"].get("finalizers"):
            self._end(path, stored)
        return stored

    def remove(self, path: str) -> None:
        """An object is gone, and so are those that it owns, after a while."""
        gone = self.objects.pop(path)
        self._versions += 1
        body = gone | {"metadata": gone["metadata"] | {"resourceVersion": str(self._versions)}}
        self._tell("DELETED", path, body, gone)
        for owned, child in list(self.objects.items()):
            if gone["metadata"]["uid"] in _owners(child):
                self._collect_later(owned, child["metadata"]["uid"])

    def delete(self, path: str, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Somebody deletes an object; a pod on a node ends there first."""
        found = self.objects[path]
        if found.get("kind") == "Pod" and found.get("spec", {}).get("nodeName") and not is_finished(found):
            if "deletionTimestamp" not in found["metadata"]:
                times = {"deletionTimestamp": iso(wall() + grace_seconds, to="seconds")}
                metadata = found["metadata"] | times | {"deletionGracePeriodSeconds": int(grace_seconds)}
                self.put(path, found | {"metadata": metadata})
        elif found["metadata"].get("finalizers"):
            if "deletionTimestamp" in found["metadata"]:
                return
            deleted = {"deletionTimestamp": iso(wall(), to="seconds")}
            self.put(path, found | {"metadata": found["metadata"] | deleted})
        else:
            self.remove(path)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        asyncio.get_running_loop().call_later(seconds, do)

    def there(self, path: str, uid: str) -> Json | None:
        """This very object; None: it is gone."""
        found = self.objects.get(path)
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def _end(self, path: str, body: Json) -> None:
        """What waited for its finalizers alone is gone."""
        if body.get("kind") != "Pod" or not body["spec"].get("nodeName"):
            self.remove(path)

    def _collect_later(self, path: str, uid: str) -> None:
        self.later(self.chance.uniform(0.0, 5.0), partial(self._collect, path, uid))

    def _collect(self, path: str, uid: str) -> None:
        """Delete an object all of whose owners are gone, as Kubernetes' garbage collector does."""
        body = self.there(path, uid)
        if body is None:
            return
        owners, uids = _owners(body), {item["metadata"]["uid"] for item in self.objects.values()}
        if owners and not owners & uids:
            self.note(f"    the garbage collector deletes {path}")
            self.delete(path)

    def _tell(self, kind: str, path: str, body: Json, before: Json | None) -> None:
        collection = path.rpartition("/")[0]
        event = Event(now(), self._versions, kind, path, body, before)
        self.events[collection].append(event)
        self.changed[collection].set()
        self.changed[collection] = asyncio.Event()
        for listener in self.listeners:
            listener(event)

    # What requests do.

    async def serve(self, method: str, path: str, query: dict[str, str], body: Any, content_type: str) -> Answer:
        """The answer to a request, which takes effect now."""
        answer = await self._answer_to(method, path, query, body, content_type)
        if method != "GET" and "/leases" not in path:
            plural, name = path.split("/")[-2:]
            what = f"{path.rpartition('/')[2]} {body['metadata']['name']}" if method == "POST" else f"{plural} {name}"
            self.note(f"    {method} {what}: {answer.status}")
        return answer

    async def _answer_to(self, method: str, path: str, query: dict[str, str], body: Any, kind: str) -> Answer:
        if method == "GET" and (about := self._about(path, query)) is not None:
            return about
        found = self.objects.get(path)
        if found is None and "merge-patch" in kind:
            return refusal(404, "not found", "NotFound")
        if found is not None and method in ("PATCH", "PUT") and isinstance(body, dict):
            metadata = body.get("metadata", {})
            for name in ("uid", "resourceVersion"):
                if metadata.get(name, found["metadata"][name]) != found["metadata"][name]:
                    return refusal(409, f"the {name} is another one", "Conflict")
        if method == "POST" and not query.get("dryRun") and (refused := self.admit(body)) is not None:
            return refused
        if method == "DELETE" and "uid" not in (body or {}).get("preconditions", {}):
            self.wrong.append(f"{path} was deleted, whichever object that is")
        return await self._send(method, path, query, body=body, content_type=kind)

    def _about(self, path: str, query: dict[str, str]) -> Answer | None:
        """The answer to a GET of what is no object: a definition, a log, or a list; None: it is of an object."""
        if "/openapi/" in path:
            return refusal(404, "not found", "NotFound")
        if path == MIRROR:
            resources = [{"name": f"{kind.lower()}s", "kind": kind, "categories": [CATEGORY]} for kind in KINDS]
            return Answer(200, {"resources": resources})
        if path.endswith("/log"):
            return Answer(200, b"the last line")
        if "limit" not in query:
            return None
        label, metadata = query.get("labelSelector", ""), {"resourceVersion": str(self._versions)}
        items = [item for at, item in self.objects.items() if at.rpartition("/")[0] == path and has(item, label)]
        return Answer(200, {"metadata": metadata, "items": items})

    def _delete(self, key: str, found: Json, body: Json) -> Answer:
        for name, wanted in body.get("preconditions", {}).items():
            if wanted != found["metadata"][name]:
                return refusal(409, f"the {name} in the precondition does not match", "Conflict")
        self.delete(key, grace_seconds=float(body.get("gracePeriodSeconds", _GRACE_SECONDS)))
        left = self.there(key, found["metadata"]["uid"])
        return Answer(200, left if left is not None else {"kind": "Status", "status": "Success"})

    def _patch(self, key: str, path: str, found: Json, body: Any) -> Answer:
        if isinstance(body, list) and not path.endswith("/status"):
            test, version, write = body
            if test["value"] != found["metadata"]["uid"]:
                return refusal(422, "the test of the patch failed", "Invalid")
            if version["value"] != found["metadata"]["resourceVersion"]:
                return refusal(409, "the object has been modified", "Conflict")
            return Answer(200, self.put(key, found | {write["path"].removeprefix("/"): write["value"]}))
        return super()._patch(key, path, found, body)

    def untrue_answer(self, method: str, path: str) -> Answer | None:
        """What the server says untruly of what is there, where it has not done so just before."""
        kind = "conflict" if method != "GET" and self.chance.random() < 0.5 else "not found"
        since = now() - self._doubted.get(path, -_DOUBT_SECONDS)
        if method == "POST" or path not in self.objects or since < _DOUBT_SECONDS:
            return None
        self._doubted[path] = now()
        return UNTRUE[kind]


class _Stream(Answer):
    """The answer to a watch."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        super().__init__(200, b"")
        self._lines = lines

    async def iter_any(self) -> AsyncIterator[bytes]:
        async for line in self._lines:
            yield line


class Connection(Kubernetes):
    """An operator's client of `server`. `is_cut`: set while it cannot be reached."""

    def __init__(self, server: SlowApiServer, is_cut: asyncio.Event) -> None:
        super().__init__(client.Configuration())
        self._is_cut = is_cut
        self._server = server
        self._chance = server.chance
        self.clock = Clock(monotonic=now, wall=wall)

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        body: Any = None,
        content_type: str = "",
        verb: str = "",
        **_: Any,
    ) -> Any:
        is_fast = any(part in path for part in _ALWAYS_FAST)
        is_late = 3.0 if self._chance.random() < 0.5 else 1.0  # of what watches tell meanwhile, too
        arrives, returns = (0.001, 0.001) if is_fast else (delay(self._chance), is_late * delay(self._chance))
        fault = self._chance.random() if self._server.is_faulty and not is_fast else 1.0
        if verb == "WATCH" or "watch" in query:
            await asyncio.sleep(arrives + returns)
            selected = query.get("labelSelector", "")
            return _Stream(self._events(path, selected, int(query.get("resourceVersion") or 0)))
        if fault < 0.02 or self._is_cut.is_set():
            await asyncio.sleep(arrives + returns)
            raise aiohttp.ServerDisconnectedError
        request = method, path, query, body, content_type
        serving = asyncio.create_task(self._serve(arrives, fault, request), context=contextvars.Context())
        self._server.tasks.add(serving)
        serving.add_done_callback(self._server.tasks.discard)
        answer = await asyncio.shield(serving)
        await asyncio.sleep(returns)
        if 0.98 < fault < 1.0 or self._is_cut.is_set():
            raise aiohttp.ServerDisconnectedError  # it has taken effect
        return answer

    async def _serve(self, arrives: float, fault: float, request: tuple[str, str, dict[str, str], Any, str]) -> Answer:
        await asyncio.sleep(arrives)
        method, path, *_ = request
        if fault < 0.03:
            return refusal(500, "the server failed", "InternalError")
        if fault < 0.04 and (untrue := self._server.untrue_answer(method, path)) is not None:
            self._server.note(f"    {method} {path}: untruly {untrue.status}")
            return untrue
        return await self._server.serve(*request)

    async def _events(self, collection: str, label: str, version: int) -> AsyncIterator[bytes]:
        """All changes after `version` in their order, late; until the watch ends, or breaks off."""
        server, chance = self._server, self._chance
        ends_at = now() + chance.expovariate(1 / 40.0) if server.is_faulty else now() + 300.0
        at, read = 0.0, 0
        while now() < ends_at:
            events = server.events[collection]
            if read == len(events):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.001, ends_at - now())):
                        await server.changed[collection].wait()
                continue
            event = events[read]
            read += 1
            if event.version <= version or (told := _told(event, label)) is None:
                continue
            at = max(at, event.at + delay(chance))
            await asyncio.sleep(max(0.0, at - now()))
            if self._is_cut.is_set():
                raise aiohttp.ServerDisconnectedError
            yield json.dumps({"type": told, "object": event.body}).encode() + b"\n"
        if server.is_faulty and chance.random() < 0.5:
            code = chance.choice((410, 500))
            yield json.dumps({"type": "ERROR", "object": {"code": code, "reason": "Expired"}}).encode() + b"\n"
        elif server.is_faulty and chance.random() < 0.5:
            raise aiohttp.ServerDisconnectedError


def has(body: Json, label: str) -> bool:
    """Whether an object has a label; any has the empty one."""
    return not label or label in body["metadata"].get("labels", {})


def is_finished(pod: Json) -> bool:
    """Whether all containers of a pod have ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_reached(pod: Json) -> bool:
    """Whether what runs in a pod answers: its node is there."""
    status = pod.get("status", {})
    ready = {"type": "Ready", "status": "True"}
    return status.get("phase") == "Running" and any(ready.items() <= each.items() for each in status["conditions"])


def _told(event: Event, label: str) -> str | None:
    """How a watch of what has this label tells of a change; None: it does not."""
    was = event.before is not None and has(event.before, label)
    if event.type == "DELETED":
        return "DELETED" if was else None
    if not has(event.body, label):
        return "DELETED" if was else None
    return "MODIFIED" if was else "ADDED"


def _content(body: Json) -> Json:
    ignored = ("resourceVersion", "generation")
    return body | {"metadata": {key: value for key, value in body["metadata"].items() if key not in ignored}}


def _owners(body: Json) -> set[str]:
    return {item["uid"] for item in body["metadata"].get("ownerReferences", ())}
