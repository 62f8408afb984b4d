"""The cluster's pods with GPUs, which come, end and are deleted at random times."""

from __future__ import annotations

from dataclasses import replace

from gpudask.planning.observed.pods import Pod
from tests.takeovers.api_server import POOL, ApiServer
from tests.takeovers.timeline import Timeline

_FIRST_SECONDS, _MEAN_SECONDS = 2.0, 6.0  # until the first one comes; between two changes
_MOST = 4  # pods that run at once
_COMES = 0.5  # share of changes by which one comes, where there is room
_FINISHES = 0.9  # of those that go: a container ends, with a stamp, and the pod is deleted later
_GPUS = (1, 1, 2)
_DELETED_AFTER_SECONDS = (0.1, 0.5, 2.0, 20.0)


class Pods:
    """Whoever makes and ends pods. Kubernetes stamps them in whole seconds."""

    def __init__(self, timeline: Timeline, server: ApiServer) -> None:
        self._timeline = timeline
        self._server = server
        self._next_at = _FIRST_SECONDS
        self._made = 0

    def change(self) -> None:
        """Make or end a pod, where it is time."""
        chance, now = self._timeline.chance, self._timeline.now
        if now < self._next_at or not self._server.works:
            return
        self._next_at = now + chance.expovariate(1 / _MEAN_SECONDS)
        running = [uid for uid, pod in self._server.pods.items() if not pod.finished]
        if not running or (len(running) < _MOST and chance.random() < _COMES):
            self._place()
            return
        uid = chance.choice(running)
        if chance.random() < _FINISHES:
            self._finish(uid)
        else:
            self._delete(uid)

    def _place(self) -> None:
        """A pod is made, gets a node, and runs."""
        self._made += 1
        uid, stamp = f"p{self._made}", self._stamp()
        gpus = self._timeline.chance.choice(_GPUS)
        pod = Pod(
            uid=uid,
            name=f"demo-gpu-worker-{self._made}",
            namespace=self._server.namespace,
            owner=self._server.owner,
            version="0",
            pool=POOL,
            dask_name=f"w{self._made}",
            phase="Running",
            ready=True,
            node="n",
            placed=stamp,
            created=stamp,
            started=stamp,
            gpus=gpus,
        )
        self._server.put_pod("ADDED", pod)
        self._timeline.note(f"{uid} is placed, with {gpus} GPUs")

    def _finish(self, uid: str) -> None:
        self._timeline.note(f"{uid} finishes")
        pod = replace(self._server.pods[uid], phase="Succeeded", finished_at=self._stamp())
        self._server.put_pod("MODIFIED", pod)
        seconds = self._timeline.chance.choice(_DELETED_AFTER_SECONDS)
        self._timeline.later(self._timeline.now + seconds, lambda: self._delete(uid))

    def _delete(self, uid: str) -> None:
        if not self._server.works:
            self._timeline.later(self._server.hangs_until, lambda: self._delete(uid))
        elif (pod := self._server.pods.get(uid)) is not None:
            self._timeline.note(f"{uid} is deleted")
            self._server.put_pod("DELETED", replace(pod, delete_by=self._stamp()))  # without any grace

    def _stamp(self) -> float:
        return float(int(self._timeline.server_wall))
