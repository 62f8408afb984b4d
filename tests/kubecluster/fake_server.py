"""A small API server: one GpuDaskCluster, its scheduler pod, server-side apply of overrides, and port-forwarding.

It runs in a thread of its own, as a server does. It knows of Kubernetes what these tests need; the rules of
server-side apply are checked against the real one in the e2e tests.
"""

from gpudask.api import Json

import asyncio
import copy
import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import WSMsgType, web

CLUSTERS = "/apis/gpudask.dev/v1alpha1/namespaces/lab/gpudaskclusters"
RECORDS = "/apis/gpudask.dev/v1alpha1/namespaces/lab/gpudaskrecords"
PODS = "/api/v1/namespaces/lab/pods"


@dataclass
class FakeServer:
    clusters: dict[str, Json] = field(default_factory=dict)
    records: list[Json] | None = field(default_factory=list)
    records_listed: int = 0  # whole ones: one may have 200 kB
    """GpuDaskRecords; None: the server knows no such kind."""
    pods: list[Json] = field(default_factory=list)
    targets: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Pod -> where its port 8786 really is."""
    dashboards: dict[str, tuple[str, int]] = field(default_factory=dict)  # the same of 8787
    forbidden: set[str] = field(default_factory=set)
    """`METHOD last-part-of-path`."""
    conflicts: int = 0
    """How many applies to answer with 409, as if another write had come between."""
    applied: list[Json] = field(default_factory=list)
    healthy: set[str] = field(default_factory=set)
    """The pods whose scheduler answers at port 8787."""
    forwards: list[str] = field(default_factory=list)
    """The pod of each connection that was forwarded."""
    forwarded_as: list[str] = field(default_factory=list)
    """Who asked for each: the header `Authorization`."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Pod -> the lines of its log; `POD previous` -> those of the container before."""
    silent_logs: set[str] = field(default_factory=set)
    """The pods whose log, followed, does not end: nothing comes after what is there."""
    unread_logs: dict[str, int] = field(default_factory=dict)
    """Pod -> the status with which its log is refused."""
    broken: int | None = None
    """The status of every answer about clusters and pods, as while a server restarts; 0: the connection is reset."""
    events: list[Json] = field(default_factory=list)
    nodes: list[Json] = field(default_factory=list)
    ingresses: list[Json] = field(default_factory=list)
    services: dict[str, Json] = field(default_factory=dict)
    watchers: list[asyncio.Queue[Json | None]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """`METHOD path`, in order."""
    told_pods: int = 0
    """How many changes of pods were told to those who watch."""
    watch_speed: float = 1
    """How many seconds of a watch's time limit pass in one."""
    busy: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """The next answers, whatever is asked: their status and headers."""
    held: dict[str, threading.Event] = field(default_factory=dict)
    """`METHOD last-part-of-path` -> until when it is neither done nor answered."""
    late: dict[str, threading.Event] = field(default_factory=dict)
    """The same of what is done at once, and answered then."""
    unanswered: set[str] = field(default_factory=set)
    """The same of what is done, and whose answer is lost with its connection."""
    token: str = ""
    """The only one that is not answered with 401; any is taken where it is empty."""
    is_mute: bool = False
    """Whether connections that are to be forwarded get no answer at all."""
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._lists: list[dict[str, Json]] = []
        self._sockets: set[web.WebSocketResponse] = set()
        self._silent: set[web.WebSocketResponse] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut_connections()
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        if not self._thread.is_alive():
            self._loop.close()  # else a whole run of tests has too many files open

    @staticmethod
    async def _end_tasks() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut_connections(self) -> None:
        """Break what is being forwarded, as a restart of the API server does."""

        self.end_watches()

        async def cut() -> None:
            for socket in list(self._sockets):
                await socket.close()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(60)

    def end_watches(self) -> None:
        """End each watch, as the server does by itself after some minutes."""

        async def end() -> None:
            for queue in self.watchers:
                queue.put_nowait(None)
            self.watchers.clear()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)

    def silence_connections(self) -> None:
        """Let what is being forwarded say nothing more, as when a pod's network goes before its last packets do."""
        self._silent |= self._sockets

    def tell(self, kind: str, body: Json) -> None:
        """Send a change to those that watch: the object as it is now, whatever becomes of it before it is sent."""
        change = {"type": kind, "object": copy.deepcopy(body)}
        for queue in list(self.watchers):
            self._loop.call_soon_threadsafe(queue.put_nowait, change)

    def kubeconfig(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "me", "user": {"token": "none"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "lab"}}],
        }

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(middlewares=[self._authenticate])
        self.add_routes(app.router)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """What is answered; a test may have a server that knows of more."""
        router.add_get("/version", self._version)
        router.add_get(CLUSTERS, self._list)
        router.add_get(CLUSTERS.replace("/namespaces/lab", ""), self._list)
        router.add_get(RECORDS, self._list_records)
        router.add_get(RECORDS.replace("/namespaces/lab", ""), self._list_records)
        router.add_get(RECORDS + "/{name}", self._get_record)
        router.add_post(CLUSTERS, self._create)
        router.add_delete(CLUSTERS + "/{name}", self._delete)
        router.add_get(PODS + "/{name}/log", self._log)
        router.add_get("/api/v1/namespaces/lab/services/{name}", self._get_service)
        router.add_get("/apis/networking.k8s.io/v1/namespaces/lab/ingresses", self._list_ingresses)
        router.add_get("/api/v1/namespaces/lab/events", self._list_events)
        router.add_get("/api/v1/nodes", self._list_nodes)
        router.add_get(CLUSTERS + "/{name}", self._get)
        router.add_patch(CLUSTERS + "/{name}", self._patch)
        router.add_get(PODS, self._list_pods)
        router.add_get(PODS + "/{name}/portforward", self._forward)

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        is_watch = request.path == PODS and "watch" in request.query
        self.requests.append(f"{'WATCH' if is_watch else request.method} {request.path}")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if self.busy:
            status, headers = self.busy.pop(0)
            return web.json_response({"message": "too many requests"}, status=status, headers=headers)
        what = f"{request.method} {request.path.rpartition('/')[2]}"
        await _set(self.held.get(what))
        answer: web.StreamResponse = await handler(request)
        await _set(self.late.get(what))
        if what in self.unanswered:
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.36.3"})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refuse(request):
            return refusal
        if "watch" in request.query:
            return await self._watch(request)
        return web.json_response({"items": list(self.clusters.values())})

    async def _list_records(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        if self.records is None:
            return _status(404, "the server could not find the requested resource")
        wanted = dict(term.split("=") for term in request.query.get("labelSelector", "").split(",") if term)
        items = [body for body in self.records if wanted.items() <= body["metadata"]["labels"].items()]
        begin, size = int(request.query.get("continue", "0")), int(request.query.get("limit", "1000"))
        more = {"continue": str(begin + size)} if begin + size < len(items) else {}
        page = items[begin : begin + size]
        if request.headers.get("Accept", "").startswith("application/json;as=PartialObjectMetadataList;"):
            kind = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
            page = [kind | {"metadata": body["metadata"]} for body in page]
        else:
            self.records_listed += len(page)
        return web.json_response({"metadata": more, "items": page})

    async def _get_record(self, request: web.Request) -> web.Response:
        named = [body for body in self.records or [] if body["metadata"]["name"] == request.match_info["name"]]
        return self._refuse(request) or (web.json_response(named[0]) if named else _status(404, "not found"))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        self.watchers.append(queue)
        while (change := await queue.get()) is not None:
            await response.write(json.dumps(change).encode() + b"\n")
        return response

    async def _create(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        body = json.loads(await request.text())
        name = body["metadata"]["name"]
        if name in self.clusters:
            return _status(409, f'gpudaskclusters.gpudask.dev "{name}" already exists')
        body["metadata"] |= {"namespace": "lab", "resourceVersion": "1", "uid": f"uid-of-{name}"}
        self.clusters[name] = body
        return web.json_response(body, status=201)

    async def _delete(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        found = self.clusters.get(request.match_info["name"])
        if found is None:
            return _status(404, "not found")
        wanted = json.loads(await request.text()).get("preconditions", {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return _status(409, "the UID in the precondition does not match")
        del self.clusters[request.match_info["name"]]
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] + (" previous" if "previous" in request.query else "")
        if refusal := self._refuse(request):
            return refusal
        if name in self.unread_logs:
            return _status(self.unread_logs[name], f"no log of {name}")
        if name not in self.logs:
            return _status(400, "no such container")
        lines = self.logs[name][-int(request.query.get("tailLines", "1000000")) :]
        text = "".join(line + "\n" for line in lines)
        if "follow" not in request.query or name not in self.silent_logs:
            return web.Response(text=text)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(text.encode())
        await asyncio.Event().wait()
        return response

    async def _get_service(self, request: web.Request) -> web.Response:
        service = self.services.get(request.match_info["name"])
        return self._refuse(request) or (web.json_response(service) if service else _status(404, "not found"))

    async def _list_ingresses(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response({"items": self.ingresses})

    async def _list_events(self, request: web.Request) -> web.Response:
        wanted = dict(
            term.removeprefix("involvedObject.").split("=") for term in request.query["fieldSelector"].split(",")
        )
        items = [event for event in self.events if wanted.items() <= event["involvedObject"].items()]
        return self._refuse(request) or web.json_response({"items": items})

    async def _list_nodes(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response({"items": self.nodes})

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if refusal := self._refuse(request):
            return refusal
        if name not in self.clusters:
            return _status(404, f'gpudaskclusters.gpudask.dev "{name}" not found')
        return web.json_response(self.clusters[name])

    async def _patch(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        body = json.loads(await request.text())
        cluster = self.clusters[request.match_info["name"]]
        if body.get("metadata", {}).get("uid", cluster["metadata"]["uid"]) != cluster["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        version = body.get("metadata", {}).get("resourceVersion", cluster["metadata"]["resourceVersion"])
        if self.conflicts or version != cluster["metadata"]["resourceVersion"]:
            self.conflicts -= 1
            return _status(409, "the object has been modified")
        if request.headers["Content-Type"] == "application/merge-patch+json":
            merge(cluster, body)
            return web.json_response(cluster)
        assert request.headers["Content-Type"] == "application/apply-patch+yaml"
        self.applied.append(body)
        apply_overrides(cluster, body, request.query["fieldManager"])
        return web.json_response(cluster)

    async def _list_pods(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refuse(request):
            return refusal
        if "watch" in request.query:
            return await self._watch_pods(request)
        items = self._selected_pods(request)
        self._lists.append(_by_uid(items))
        return web.json_response({"metadata": {"resourceVersion": str(len(self._lists))}, "items": items})

    def _selected_pods(self, request: web.Request) -> list[Json]:
        wanted = dict(term.split("=") for term in request.query.get("labelSelector", "").split(",") if term)
        return [pod for pod in self.pods if wanted.items() <= pod["metadata"]["labels"].items()]

    async def _watch_pods(self, request: web.Request) -> web.StreamResponse:
        """What tests change in `pods`, told as changes since the list with that version."""
        if "WATCH pods" in self.forbidden:
            return _status(403, 'User "me" cannot watch pods')
        response = web.StreamResponse()
        await response.prepare(request)
        known = self._lists[int(request.query["resourceVersion"]) - 1]
        end = self._loop.time() + float(request.query["timeoutSeconds"]) / self.watch_speed
        while self._loop.time() < end and self.broken is None and request.transport is not None:
            now = _by_uid(self._selected_pods(request))
            told = [
                ("ADDED" if uid not in known else "MODIFIED", pod) for uid, pod in now.items() if known.get(uid) != pod
            ]
            told += [("DELETED", pod) for uid, pod in known.items() if uid not in now]
            for kind, body in told:
                await response.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
                self.told_pods += 1
            known = now
            await asyncio.sleep(0.02)
        return response

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if refusal := self._refuse(request):
            return refusal
        if name not in {pod["metadata"]["name"] for pod in self.pods}:
            return _status(404, f'pods "{name}" not found')
        if self.is_mute:
            await asyncio.Event().wait()
        self.forwards.append(name)
        self.forwarded_as.append(request.headers.get("Authorization", ""))
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self._sockets.add(socket)
        port = int(request.query["ports"])
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        if port == 8786:
            await self._pipe(socket, *self.targets[name])
        elif name in self.dashboards:
            await self._pipe(socket, *self.dashboards[name])
        elif name in self.healthy:
            question = await socket.receive()
            if question.type == WSMsgType.BINARY and question.data.startswith(b"\x00GET /health "):
                await socket.send_bytes(b"\x00HTTP/1.1 200 OK\r\n\r\nok")
        else:
            await socket.send_bytes(b"\x01connection refused")
        self._sockets.discard(socket)
        return socket

    async def _pipe(self, socket: web.WebSocketResponse, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)

        async def back() -> None:
            while data := await reader.read(32768):
                if socket not in self._silent:
                    await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.create_task(back())
        async for message in socket:
            assert message.type == WSMsgType.BINARY
            assert message.data[0] == 0
            if socket not in self._silent:
                writer.write(message.data[1:])
        task.cancel()
        writer.close()

    def _refuse(self, request: web.Request) -> web.Response | None:
        if self.broken == 0:
            assert request.transport is not None
            request.transport.abort()
        if self.broken is not None:
            return _status(self.broken or 500, "the server is restarting")
        what = f"{request.method} {request.path.rpartition('/')[2]}"
        return _status(403, f'User "me" cannot {what}') if what in self.forbidden else None


def _by_uid(pods: list[Json]) -> dict[str, Json]:
    return {pod["metadata"]["uid"]: copy.deepcopy(pod) for pod in pods}


async def _set(event: threading.Event | None) -> None:
    while event is not None and not event.is_set():  # noqa: ASYNC110 - it is set in another thread
        await asyncio.sleep(0.02)


def merge(cluster: Json, body: Json) -> None:
    """A merge patch of the spec and of annotations."""
    cluster["spec"] = merged(cluster["spec"], body["spec"])
    annotations = cluster["metadata"].get("annotations", {}) | body.get("metadata", {}).get("annotations", {})
    cluster["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    cluster["metadata"]["resourceVersion"] = str(int(cluster["metadata"]["resourceVersion"]) + 1)


def merged(value: Json, patch: Json) -> Json:
    """RFC 7396."""
    kept = {name: inner for name, inner in value.items() if patch.get(name, "") is not None}
    new = {name: inner for name, inner in patch.items() if inner is not None}
    return kept | {
        name: merged(kept.get(name) or {}, inner) if isinstance(inner, dict) else inner for name, inner in new.items()
    }


def apply_overrides(cluster: Json, body: Json, manager: str) -> None:
    """Server-side apply, forced, of `spec.overrides` and of annotations alone."""
    wanted = {entry["pool"]: entry for entry in body.get("spec", {}).get("overrides", [])}
    managed = {item["manager"]: item for item in cluster["metadata"].get("managedFields", [])}
    present = {entry["pool"]: entry for entry in cluster["spec"].get("overrides", [])}
    held = {pool for name, item in managed.items() if name != manager for pool in _pools(item)}
    for pool in _pools(managed.get(manager, {})) - set(wanted) - held:
        present.pop(pool, None)
    cluster["spec"]["overrides"] = list((present | wanted).values())
    noted = body["metadata"].get("annotations", {})
    annotations = cluster["metadata"].get("annotations", {})
    let_go = _annotations(managed.get(manager, {})) - set(noted)
    cluster["metadata"]["annotations"] = {key: annotations[key] for key in annotations if key not in let_go} | noted
    managed[manager] = managed_fields(manager, *wanted)
    managed[manager]["fieldsV1"]["f:metadata"] = {"f:annotations": {f"f:{key}": {} for key in noted}}
    cluster["metadata"]["managedFields"] = list(managed.values())
    cluster["metadata"]["resourceVersion"] = str(int(cluster["metadata"]["resourceVersion"]) + 1)


def managed_fields(manager: str, *pools: str) -> Json:
    keys = {"k:" + json.dumps({"pool": pool}): {"f:replicas": {}} for pool in pools}
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:overrides": keys}}}


def _pools(item: Json) -> set[str]:
    fields = item.get("fieldsV1", {}).get("f:spec", {}).get("f:overrides", {})
    return {json.loads(key[2:])["pool"] for key in fields}


def _annotations(item: Json) -> set[str]:
    fields = item.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
    return {key[2:] for key in fields}


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def cluster(name: str, *pools: str, **status: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "lab", "resourceVersion": "1", "uid": f"uid-of-{name}"},
        "spec": {"image": "i", "pools": [{"name": pool} for pool in pools]},
        "status": status,
    }


def owner(cluster: str, *, uid: str = "") -> Json:
    """The reference to the cluster that controls an object."""
    reference = {"apiVersion": "gpudask.dev/v1alpha1", "kind": "GpuDaskCluster", "name": cluster, "controller": True}
    return reference | {"uid": uid or f"uid-of-{cluster}"}


def scheduler_pod(
    name: str, *, ready: bool = True, created: str = "2026-01-01T00:00:00Z", uid: str = "", owner_uid: str = ""
) -> Json:
    made = pod(name, "scheduler", ready=ready, created=created, owner_uid=owner_uid)
    made["metadata"]["uid"] = uid or made["metadata"]["uid"]
    return made


def pod(
    name: str,
    component: str,
    *,
    ready: bool = True,
    created: str = "2026-01-01T00:00:00Z",
    owner_uid: str = "",
    **labels: str,
) -> Json:
    cluster = re.split("-scheduler-|-[a-z]+-worker-", name)[0]
    labels = {"gpudask.dev/cluster": cluster, "dask.org/component": component, **labels}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "creationTimestamp": created,
            "labels": labels,
            "ownerReferences": [owner(cluster, uid=owner_uid)],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
