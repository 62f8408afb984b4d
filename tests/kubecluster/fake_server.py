"""A small API server: one GpuDaskCluster, its scheduler pod, server-side apply of overrides, and port-forwarding.

It runs in a thread of its own, as a server does. It knows of Kubernetes what these tests need; the rules of
server-side apply are checked against the real one in the e2e tests.
"""

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import WSMsgType, web

Json = dict[str, Any]
CLUSTERS = "/apis/gpudask.dev/v1alpha1/namespaces/lab/gpudaskclusters"
PODS = "/api/v1/namespaces/lab/pods"


@dataclass
class FakeServer:
    clusters: dict[str, Json] = field(default_factory=dict)
    pods: list[Json] = field(default_factory=list)
    targets: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Pod -> where its port 8786 really is."""
    forbidden: set[str] = field(default_factory=set)
    """`METHOD last-part-of-path`."""
    conflicts: int = 0
    """How many applies to answer with 409, as if another write had come between."""
    applied: list[Json] = field(default_factory=list)
    forwards: list[str] = field(default_factory=list)
    """The pod of each connection that was forwarded."""
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sockets: set[web.WebSocketResponse] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut_connections()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut_connections(self) -> None:
        """Break what is being forwarded, as a restart of the API server does."""

        async def cut() -> None:
            for socket in list(self._sockets):
                await socket.close()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(10)

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
        app = web.Application()
        app.router.add_get("/version/", self._version)
        app.router.add_get(CLUSTERS, self._list)
        app.router.add_get(CLUSTERS + "/{name}", self._get)
        app.router.add_patch(CLUSTERS + "/{name}", self._apply)
        app.router.add_get(PODS, self._list_pods)
        app.router.add_get(PODS + "/{name}/portforward", self._forward)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.36.3"})

    async def _list(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response({"items": list(self.clusters.values())})

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if refusal := self._refuse(request):
            return refusal
        if name not in self.clusters:
            return _status(404, f'gpudaskclusters.gpudask.dev "{name}" not found')
        return web.json_response(self.clusters[name])

    async def _apply(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        assert request.headers["Content-Type"] == "application/apply-patch+yaml"
        body = json.loads(await request.text())
        cluster = self.clusters[request.match_info["name"]]
        if self.conflicts or body["metadata"]["resourceVersion"] != cluster["metadata"]["resourceVersion"]:
            self.conflicts -= 1
            return _status(409, "the object has been modified")
        self.applied.append(body)
        apply_overrides(cluster, body, request.query["fieldManager"])
        return web.json_response(cluster)

    async def _list_pods(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response({"items": self.pods})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if refusal := self._refuse(request):
            return refusal
        if name not in {pod["metadata"]["name"] for pod in self.pods}:
            return _status(404, f'pods "{name}" not found')
        self.forwards.append(name)
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        self._sockets.add(socket)
        port = int(request.query["ports"])
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        if port == 8786:
            await self._pipe(socket, *self.targets[name])
        self._sockets.discard(socket)
        return socket

    async def _pipe(self, socket: web.WebSocketResponse, host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)

        async def back() -> None:
            while data := await reader.read(32768):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        task = asyncio.create_task(back())
        async for message in socket:
            assert message.type == WSMsgType.BINARY
            assert message.data[0] == 0
            writer.write(message.data[1:])
        task.cancel()
        writer.close()

    def _refuse(self, request: web.Request) -> web.Response | None:
        what = f"{request.method} {request.path.rsplit('/', 1)[1]}"
        return _status(403, f'User "me" cannot {what}') if what in self.forbidden else None


def apply_overrides(cluster: Json, body: Json, manager: str) -> None:
    """Server-side apply, forced, of `spec.overrides` alone."""
    wanted = {entry["pool"]: entry for entry in body.get("spec", {}).get("overrides", [])}
    managed = {item["manager"]: item for item in cluster["metadata"].get("managedFields", [])}
    mine = managed.get(manager, {}).get("fieldsV1", {}).get("f:spec", {}).get("f:overrides", {})
    owned = {json.loads(key[2:])["pool"] for key in mine}
    present = {entry["pool"]: entry for entry in cluster["spec"].get("overrides", [])}
    held = {pool for name, item in managed.items() if name != manager for pool in _pools(item)}
    for pool in owned - set(wanted) - held:
        present.pop(pool, None)
    cluster["spec"]["overrides"] = list((present | wanted).values())
    managed[manager] = managed_fields(manager, *wanted)
    cluster["metadata"]["managedFields"] = list(managed.values())
    cluster["metadata"]["resourceVersion"] = str(int(cluster["metadata"]["resourceVersion"]) + 1)


def managed_fields(manager: str, *pools: str) -> Json:
    keys = {"k:" + json.dumps({"pool": pool}): {"f:replicas": {}} for pool in pools}
    return {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:overrides": keys}}}


def _pools(item: Json) -> set[str]:
    return {json.loads(key[2:])["pool"] for key in item["fieldsV1"].get("f:spec", {}).get("f:overrides", {})}


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def cluster(name: str, *pools: str, **status: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "lab", "resourceVersion": "1"},
        "spec": {"image": "i", "pools": [{"name": pool} for pool in pools]},
        "status": status,
    }


def scheduler_pod(name: str, *, ready: bool = True, created: str = "2026-01-01T00:00:00Z") -> Json:
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
