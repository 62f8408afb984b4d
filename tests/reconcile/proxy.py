"""A proxy before the API server: it keeps watch events back, ends watches with 410, fails requests or loses answers."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import base64
import json
import ssl
import tempfile
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

_EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


class Proxy:
    """`blind`: swallow the events of watches. `expire()`: end every watch with 410, and let new ones see.

    `failing` and `losing`: for how many more pods the creation is answered with 5xx before it is done, or after.
    `created`: how many pods were made through it. `faults`: requests that are answered with an error each, once, and
    not handed on: method, end of the path, status. `refused`: namespaces in which nothing is allowed (403), as once
    they are deleted with the roles in them; `refuse` ends their watches, too. `job_writes_left`: after so many more
    writes for jobs, the last of which is done without an answer, each is answered with 503 and not done; None: none is.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._cluster = config["clusters"][0]["cluster"]
        self._user = config["users"][0]["user"]
        self._watches: dict[web.StreamResponse, asyncio.Event] = {}  # and what ends each
        self.blind = False
        self.expired = 0
        self.failing = 0
        self.losing = 0
        self.created = 0
        self.faults: list[tuple[str, str, int]] = []
        self.refused: set[str] = set()
        self.job_writes_left: int | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls(), limit=0))
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Hang up."""
        for end in self._watches.values():
            end.set()
        await self._session.close()
        await self._runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads here."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "none"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    async def refuse(self, namespace: str) -> None:
        """Allow nothing there any more, and end the watches."""
        self.refused.add(namespace)
        for end in self._watches.values():
            end.set()

    async def expire(self) -> None:
        """End every watch with 410."""
        self.blind = False
        for response, end in list(self._watches.items()):
            end.set()
            await response.write(json.dumps(_EXPIRED).encode() + b"\n")
            self.expired += 1

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() in ("accept", "content-type", "user-agent")}
        url = self._cluster["server"] + request.raw_path
        body = await request.read()
        creates_pod = request.method == "POST" and request.path.endswith("/pods") and "dryRun" not in request.query
        for_job = self.job_writes_left is not None and _is_for_job(request, body)
        if (creates_pod and self.failing) or (for_job and not self.job_writes_left):
            self.failing -= bool(creates_pod and self.failing)
            return refusal(503, "ServiceUnavailable")
        if any(f"/namespaces/{name}/" in request.path for name in self.refused):
            return refusal(403, "Forbidden")
        for fault in self.faults:
            method, path, status = fault
            if request.method == method and request.path.endswith(path):
                self.faults.remove(fault)
                return refusal(status, "Fault")
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, timeout=timeout
        ) as answer:
            self.created += creates_pod and answer.status == 201
            if self._loses_answer(creates_pod=creates_pod, for_job=for_job):
                return refusal(504, "Timeout")
            if await self._keeps_answer(request):
                return hung_up(request)
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            if "watch=true" in request.query_string:
                await self._relay(answer, response)
            else:
                await response.write(await answer.read())
            return response

    async def _keeps_answer(self, _: web.Request) -> bool:
        """Whether the connection of a request that was done ends without its answer: no, but in subclasses."""
        return False

    def _loses_answer(self, *, creates_pod: bool, for_job: bool) -> bool:
        """Whether the answer to a request that was done is kept back."""
        if for_job and self.job_writes_left:
            self.job_writes_left -= 1
            return not self.job_writes_left
        if creates_pod and self.losing:
            self.losing -= 1
            return True
        return False

    async def _relay(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        end = self._watches[response] = asyncio.Event()
        ended = asyncio.create_task(end.wait())
        try:
            while not end.is_set():
                reading = asyncio.create_task(answer.content.readline())  # never cut short: half a line would be lost
                await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
                if end.is_set():
                    reading.cancel()
                elif line := reading.result():
                    if not self.blind:
                        await response.write(line)
                else:
                    break
        finally:
            ended.cancel()
            del self._watches[response]

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._file(self._cluster, "certificate-authority"))
        context.load_cert_chain(self._file(self._user, "client-certificate"), self._file(self._user, "client-key"))
        return context

    def _file(self, section: Json, name: str) -> str:
        if name in section:
            return str(section[name])
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(base64.b64decode(section[f"{name}-data"]))
        return file.name


def hung_up(request: web.Request) -> web.Response:
    """End the connection."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)  # which nobody hears any more


def refusal(code: int, reason: str) -> web.Response:
    """An error of the API server, as it answers."""
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return web.json_response(status, status=code)


def _is_for_job(request: web.Request, body: bytes) -> bool:
    """Whether it is a write of a job's status, its runner's pod, or its cluster."""
    if request.method == "GET":
        return False
    of_cluster = "/gpudaskclusters" in request.path and not request.path.endswith("/status")
    of_runner = "/pods" in request.path and (b"-runner-" in body or "-runner-" in request.path)
    return "/gpudaskjobs/" in request.path or of_cluster or of_runner
