"""The fake server, which knows of GpuDaskJobs, ConfigMaps, and logs whose lines have a time.

A test plays the operator: `begin` starts a runner, `end` ends it, `report` writes the job's status.
"""

from __future__ import annotations

import asyncio
import copy
import json
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from gpudask.api import Json
from tests.kubecluster.fake_server import CLUSTERS, PODS, FakeServer, _status, merged

JOBS = CLUSTERS.replace("gpudaskclusters", "gpudaskjobs")
CONFIG_MAPS = PODS.replace("/pods", "/configmaps")
BEGIN = 1_800_000_000.0  # seconds since 1970 of the first line


class Once(set[str]):
    """Requests, each of which is in it once: the first time that somebody looks."""

    def __contains__(self, request: object) -> bool:
        found = super().__contains__(request)
        self.discard(str(request))
        return found


class JobServer(FakeServer):
    """Attributes are those of `FakeServer`, and these.

    Attributes:
        jobs: by name.
        config_maps: by name.
        lines: pod -> the lines of its log, each with its time in seconds since 1970.
        cuts: pod -> after how many bytes each of the next answers with its log breaks off.
        ends: the same, where it ends as if that were all.
        log_requests: the query of each request for a log.
        no_jobs: whether the server knows no such kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, Json] = {}
        self.config_maps: dict[str, Json] = {}
        self.lines: dict[str, list[tuple[float, str]]] = {}
        self.cuts: dict[str, list[int]] = {}
        self.ends: dict[str, list[int]] = {}
        self.log_requests: list[dict[str, str]] = []
        self.no_jobs = False
        self._version_number = 1

    # ------------------------------------------------------------------ what a test does as the operator

    def add_job(self, name: str, **status: Any) -> Json:
        self.jobs[name] = {"metadata": {"name": name, "namespace": "lab", "uid": f"uid-of-{name}"}, "spec": {}}
        self._touch(name)
        if status:
            self.report(name, **status)
        return self.jobs[name]

    def report(self, name: str, **status: Any) -> None:
        """Put this into the job's status."""
        self.jobs[name] = self.jobs[name] | {"status": self.jobs[name].get("status", {}) | status}
        self._touch(name)

    def finish(self, name: str, kind: str, message: str = "", *, code: int | None = None) -> None:
        """End the job: `Complete` or `Failed`."""
        condition = {"type": kind, "status": "True", "reason": f"Because{kind}", "message": message}
        runner = {} if code is None else {"runner": {"exitCode": code}}
        self.report(name, phase=kind, conditions=[condition], **runner)

    def begin(self, name: str, attempt: int, *lines: str) -> str:
        """Start a runner, which writes these lines a tenth of a second apart; its pod's name."""
        pod = f"{name}-runner-{attempt}"
        self.lines[pod] = []
        self.write(pod, *lines)
        running = {"containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "x"}}}]}
        self.pods.append(
            {
                "metadata": {"name": pod, "uid": f"uid-of-{pod}", "labels": {}},
                "spec": {"containers": [{"name": "main"}, {"name": "sidecar"}]},
                "status": {"phase": "Running", **running},
            }
        )
        self.report(name, phase="Running", attempts=attempt, runner={"pod": pod})
        return pod

    def write(self, pod: str, *lines: str) -> None:
        for line in lines:
            self.lines[pod].append((BEGIN + len(self.lines[pod]) / 10, line))

    def end(self, pod: str, code: int, reason: str = "") -> None:
        """End a runner."""
        state = {"terminated": {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}
        self.pods[:] = [item | {"status": status} if item["metadata"]["name"] == pod else item for item in self.pods]

    def _touch(self, name: str) -> None:
        self._version_number += 1
        job = copy.deepcopy(self.jobs[name])
        job["metadata"]["resourceVersion"] = str(self._version_number)
        self.jobs[name] = job

    # ------------------------------------------------------------------ what it answers

    def add_routes(self, router: web.UrlDispatcher) -> None:
        super().add_routes(router)
        router.add_get(JOBS, self._list_jobs)
        router.add_post(JOBS, self._create_job)
        router.add_get(JOBS + "/{name}", self._get_job)
        router.add_patch(JOBS + "/{name}", self._patch_job)
        router.add_delete(JOBS + "/{name}", self._delete_job)
        router.add_post(CONFIG_MAPS, self._create_config_map)
        router.add_get(CONFIG_MAPS + "/{name}", self._get_config_map)
        router.add_get(PODS + "/{name}", self._get_pod)

    async def _list_jobs(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refuse(request):
            return refusal
        if "watch" in request.query:
            return await self._watch_jobs(request)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": list(self.jobs.values())})

    async def _watch_jobs(self, request: web.Request) -> web.StreamResponse:
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        response = web.StreamResponse()
        await response.prepare(request)
        seen, is_told = int(request.query["resourceVersion"]), False
        while self.broken is None and request.transport is not None:
            now = self.jobs.get(name)
            if now is None and not is_told:
                is_told, gone = True, {"metadata": {"name": name, "uid": "", "resourceVersion": "0"}}
                await response.write(json.dumps({"type": "DELETED", "object": gone}).encode() + b"\n")
            elif now is not None and int(now["metadata"]["resourceVersion"]) > seen:
                seen = int(now["metadata"]["resourceVersion"])
                await response.write(json.dumps({"type": "MODIFIED", "object": now}).encode() + b"\n")
            await asyncio.sleep(0.02)
        return response

    async def _create_job(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        if self.no_jobs:
            return _status(404, "the server could not find the requested resource")
        body = json.loads(await request.text())
        name = body["metadata"]["name"]
        if name in self.jobs:
            return _status(409, f'gpudaskjobs.gpudask.dev "{name}" already exists')
        body["metadata"] |= {"namespace": "lab", "uid": f"uid-of-{name}"}
        self.jobs[name] = body
        self._touch(name)
        return web.json_response(self.jobs[name], status=201)

    async def _get_job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["name"])
        return self._refuse(request) or (web.json_response(job) if job else _status(404, "not found"))

    async def _patch_job(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        body, name = json.loads(await request.text()), request.match_info["name"]
        if name not in self.jobs:
            return _status(404, "not found")
        if body["metadata"]["uid"] != self.jobs[name]["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        self.jobs[name] = self.jobs[name] | {"spec": merged(self.jobs[name]["spec"], body["spec"])}
        self._touch(name)
        return web.json_response(self.jobs[name])

    async def _delete_job(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        body, found = json.loads(await request.text()), self.jobs.get(request.match_info["name"])
        if found is None:
            return _status(404, "not found")
        if body["preconditions"]["uid"] != found["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        del self.jobs[request.match_info["name"]]
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _create_config_map(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        body = json.loads(await request.text())
        name = body["metadata"]["name"]
        if name in self.config_maps:
            return _status(409, f'configmaps "{name}" already exists')
        self.config_maps[name] = body
        return web.json_response(body, status=201)

    async def _get_config_map(self, request: web.Request) -> web.Response:
        found = self.config_maps.get(request.match_info["name"])
        return self._refuse(request) or (web.json_response(found) if found else _status(404, "not found"))

    async def _get_pod(self, request: web.Request) -> web.Response:
        found = [pod for pod in self.pods if pod["metadata"]["name"] == request.match_info["name"]]
        missing = _status(404, f'pods "{request.match_info["name"]}" not found')
        return self._refuse(request) or (web.json_response(found[0]) if found else missing)

    async def _log(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if refusal := self._refuse(request):
            return refusal
        if name in self.unread_logs:
            return _status(self.unread_logs[name], f"no log of {name}")
        if name not in {pod["metadata"]["name"] for pod in self.pods}:
            return _status(404, f'pods "{name}" not found')
        self.log_requests.append(dict(request.query))
        cut = self.cuts.get(name, []).pop(0) if self.cuts.get(name) else None
        end = self.ends.get(name, []).pop(0) if self.ends.get(name) else None
        response = web.StreamResponse()
        await response.prepare(request)
        since = request.query.get("sinceTime")
        begin = datetime.fromisoformat(since).timestamp() if since else 0.0
        at, sent = 0, 0
        while True:
            # Looked at before the lines: what it wrote last comes, too.
            is_over = "follow" not in request.query or not self._runs(name)
            new = self.lines[name][at:]
            at += len(new)
            data = b"".join(_stamped(time, line) for time, line in new if time >= begin)
            limit = next((item for item in (cut, end) if item is not None), None)
            if limit is not None and sent + len(data) >= limit:
                await response.write(data[: limit - sent])
                if cut is not None:
                    await asyncio.sleep(0.05)  # that it arrives before the end does
                    assert request.transport is not None
                    request.transport.abort()
                return response
            if data:
                await response.write(data)
                sent += len(data)
            if is_over:
                return response
            await asyncio.sleep(0.02)

    def _runs(self, name: str) -> bool:
        found = [pod for pod in self.pods if pod["metadata"]["name"] == name]
        return bool(found) and found[0]["status"]["phase"] == "Running"


def _stamped(time: float, line: str) -> bytes:
    stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    return f"{stamp} {line}\n".encode()
