"""A cluster's loop on an API server in memory: the passes as they are, without a Kubernetes and its seconds."""

from __future__ import annotations

from gpudask.api import Json

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from gpudask.api.resource import API_VERSION, LABEL_PRELOAD, Identity
from gpudask.clients.events import EventRecorder
from gpudask.mirror.definitions import Definitions
from gpudask.clients.reflector import Reflector
from gpudask.planning.observed.pods import Pod
from gpudask.planning.observed.parser import parse_pod
from gpudask.clients.reflector import Caches
from gpudask.reconcile.context import Context
from gpudask.reconcile.drift_repair import observe_owned
from gpudask.reconcile.loop import ClusterLoop
from gpudask.reconcile.preload_configmaps import Preloads, observe_shared
from gpudask.reconcile.drift_repair import KINDS
from tests.builders import a_manifest
from tests.clients.fake_api_server import FakeApiServer
from tests.planning.builders import NOW, stored


class Operated:
    """Clusters of one namespace, each with its loop. Pods stay pending: there is no kubelet."""

    def __init__(self, server: FakeApiServer | None = None, **context: Any) -> None:
        self.server = server or FakeApiServer()
        self._loops: dict[str, ClusterLoop] = {}
        self.definitions: Definitions | None = None  # of the mirror, where there is one
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.context = Context(
            api=self.server,
            schedulers=None,  # type: ignore[arg-type] - no scheduler pod gets an address
            events=EventRecorder(self.server, "test"),
            pods=self._caches("pods", parse_pod, gone=self._pod_gone),
            dependents={kind: self._caches(plural, observe_owned(kind)) for kind, (_, plural) in KINDS.items()},
            preloads=Preloads(
                self.server,
                self._caches("configmaps", observe_shared, self._preloads_changed),
                context.pop("preload", {"entry.py": b""}),
                _clock,
            ),
            key=b"k" * 32,
            **{"recheck_seconds": 0.01, "deadline_seconds": 0.05, "clock": _clock} | context,
        )

    def apply(self, *pools: Json, name: str = "demo", **spec: Any) -> None:
        """A cluster is there from now on, and somebody works for it."""
        body = self.server.put(self._path(name), stored(a_manifest(*pools, name=name, **spec), uid=f"uid-of-{name}"))
        self._begin(body)

    def _begin(self, body: Json, *, ended: bool | None = None) -> None:
        name = body["metadata"]["name"]
        loop = self._loops[Identity(name, "default", body["metadata"]["uid"]).owner_key] = ClusterLoop(
            self.context, body, self.definitions
        )
        if ended is not None:
            loop.doubt_copy(ended=ended)
        self.tasks[name] = self.context.supervisor.start(loop.run, kind="cluster", name=name, may_end=True)

    def take_over(self) -> None:
        """Work for all clusters that the server has, with caches of what it has, as who stood by meanwhile does."""
        self.fill_caches()
        for body in self.clusters():
            self._begin(body)

    def begin_late(self, body: Json, *, ended: bool) -> None:
        """Work for a cluster by a copy of it that is no news, or that came after its end was seen."""
        self._begin(body, ended=ended)

    def clusters(self) -> list[Json]:
        """All clusters that the server has."""
        return [body for path, body in self.server.objects.items() if "/gpudaskclusters/" in path]

    def fill_caches(self) -> None:
        """Know what the server has."""
        all_caches = self.context.pods, self.context.preloads.caches, *self.context.dependents.values()
        for reflector in (r for kind in all_caches for r in kind.reflectors):
            reflector.synced.set()
        for body in list(self.server.objects.values()):
            self.watch(body)

    def watch(self, body: Json) -> None:
        """What a watch would tell: an object is so now."""
        caches = {"Pod": self.context.pods, **self.context.dependents}.get(body.get("kind", ""))
        if LABEL_PRELOAD in body["metadata"].get("labels", {}):
            caches = self.context.preloads.caches
        if caches is not None:
            caches.upsert("default", body)

    def loop(self, name: str = "demo") -> ClusterLoop:
        """The loop of a cluster."""
        return self._loops[self._identity(name).owner_key]

    def seen(self, name: str = "demo") -> tuple[Pod, ...]:
        """The pods of a cluster, as its loop sees them."""
        return self.context.pods_of(self._identity(name))

    def _identity(self, name: str) -> Identity:
        return Identity(name, "default", f"uid-of-{name}")

    def delete(self, name: str = "demo") -> None:
        """The cluster is deleted, and nobody tells its loop."""
        del self.server.objects[self._path(name)]

    def replace(self, name: str = "demo") -> None:
        """The same, and another one of its name is made."""
        self.server.put(self._path(name), self.server.objects[self._path(name)] | {"metadata": {"uid": "another"}})

    def forget(self, name: str = "demo") -> None:
        """The same, and what knew it forgets it."""
        del self._loops[self._identity(name).owner_key], self.tasks[name]

    def lose(self, pod: str) -> None:
        """A pod vanishes, and the watch tells."""
        body = self.server.objects.pop(f"/api/v1/namespaces/default/pods/{pod}")
        self.context.pods.forget("default", body["metadata"]["uid"])

    def condition(self, kind: str, name: str = "demo") -> str:
        """A condition as last written: `True AllReady: message`."""
        items = self.server.objects[self._path(name)].get("status", {}).get("conditions", ())
        item = next((item for item in items if item["type"] == kind), {})
        return f"{item.get('status')} {item.get('reason')}: {item.get('message', '')}"

    def pods(self) -> list[str]:
        return self.server.names("pods")

    async def stop(self) -> None:
        await self.stop_loops()
        await self.server.close()

    async def stop_loops(self) -> None:
        """Work for no cluster any more."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def _caches(
        self,
        plural: str,
        reduce: Any,
        changed: Callable[[str], None] | None = None,
        gone: Callable[[Any, float], None] = lambda _gone, _since: None,
    ) -> Caches:
        path, changed = f"/api/v1/namespaces/default/{plural}", changed or self._changed
        return Caches([Reflector(self.server, path, label="", reduce=reduce, on_change=changed, on_gone=gone)])

    def _pod_gone(self, pod: Pod, _since: float) -> None:
        if pod.owner in self._loops:
            self._loops[pod.owner].pod_gone(pod)

    def _preloads_changed(self, namespace_key: str) -> None:
        now = self.context.preloads.known(namespace_key.removesuffix("/"))
        for loop in self._loops.values():
            loop.preloads_changed(now)

    def _changed(self, owner: str) -> None:
        if owner in self._loops:
            self._loops[owner].wake()

    def _path(self, name: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/default/gpudaskclusters/{name}"


def _clock() -> float:
    return NOW + asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def operated(server: FakeApiServer | None = None, **context: Any) -> AsyncIterator[Operated]:
    """An operator in memory, until the block ends."""
    operated = Operated(server, **context)
    try:
        yield operated
    finally:
        await operated.stop()


class CountedQueue:
    """A queue that admits everybody, and counts them."""

    def __init__(self) -> None:
        self.passes = self.waiting = 0

    async def slot_for_one_step(self) -> None:
        self.passes += 1


async def becomes(look: Callable[[], Any], wanted: Any, seconds: float = 60.0) -> float:
    """Wait until `look()` is `wanted`, or is accepted by it; how many seconds that took."""
    accept = wanted if callable(wanted) else lambda found: found == wanted
    clock = asyncio.get_running_loop().time
    began = clock()
    while not accept(found := look()):
        assert clock() - began < seconds, f"not within {seconds:g} s; seen last: {json.dumps(found)}"
        await asyncio.sleep(0.005)
    return clock() - began
