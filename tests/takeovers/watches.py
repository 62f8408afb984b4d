"""What an operator knows of the API server: its cache of pods, and the cluster's changes, each by a watch.

A watch may be cut for a while, and goes on from where it was or, if it expired, from a new list. Then what is there is
known, and of what is gone only that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpudask.api import Json
from gpudask.clients.clock import Silence
from gpudask.planning.observed.clocks import Clocks
from gpudask.planning.observed.pods import Pod, on_operator_clock
from tests.takeovers.api_server import ApiServer
from tests.takeovers.timeline import Timeline

_LAST_ALONE = 0.5  # share of reads in which of several changes of the cluster the last one alone is handed on


class PodWatch:
    """The cache of pods. `pods`: by uid, with times by the operator's clock.

    `clock`, `clocks`: the operator's time, and the other clocks. `unanswered_at`: as `Clock`'s. `on_gone` is called
    with each pod that is gone, and `on_change` after each change.
    """

    def __init__(
        self,
        timeline: Timeline,
        server: ApiServer,
        clock: Callable[[], float],
        clocks: Callable[[], Clocks],
        unanswered_at: Callable[[], float],
    ) -> None:
        self._timeline = timeline
        self._server = server
        self._clock = clock
        self._clocks = clocks
        self._unanswered_at = unanswered_at
        self.pods: dict[str, Pod] = {}
        self.on_gone: Callable[[Pod], None] = lambda _pod: None
        self.on_change: Callable[[], None] = lambda: None
        self.cut_until = 0.0
        self._position: int | None = None  # of the next event; None: a list comes first
        self._known_at = 0.0
        self._silence = Silence()

    @property
    def is_synced(self) -> bool:
        """Whether it has listed, and goes on from that."""
        return self._position is not None

    @property
    def known_at(self) -> float:
        """When it told anything last, by the operator's clock."""
        return self._known_at

    def expire(self) -> None:
        """Have it list anew."""
        self._position = None

    def read(self) -> None:
        """Take in what can be heard now."""
        now = self._timeline.now
        if now < self.cut_until:
            return
        if self._position is None:
            self._list()
        elif now >= self._server.behind_until:
            for event in self._server.pod_events[self._position :]:
                self._silence.ends(self._known_at, self._clock())
                if event.type == "DELETED":
                    self._keep(event.pod)  # the API server tells of its deletion, and then that it is gone
                    self._drop(event.pod.uid)
                else:
                    self._see(event.pod)
                self._known_at = self._clock()
            self._position = len(self._server.pod_events)

    def _list(self) -> None:
        for pod in self._server.pods.values():
            self._see(pod)
        for uid in [uid for uid in self.pods if uid not in self._server.pods]:
            self._drop(uid, self._silence.known_since(self._known_at, self._clock()))
        self._known_at, self._position = self._clock(), len(self._server.pod_events)

    def _see(self, pod: Pod) -> None:
        before = self.pods.get(pod.uid)
        if before is not None and int(before.version) >= int(pod.version):
            return
        self._keep(pod)
        self.on_change()

    def _keep(self, pod: Pod) -> None:
        before, now = self.pods.get(pod.uid), self._clock()
        since = self._silence.known_since(self._known_at, now)
        self.pods[pod.uid] = on_operator_clock(
            pod, before, now=now, server_ahead=self._clocks().server_ahead, since=since
        )

    def _drop(self, uid: str, since: float = 0.0) -> None:
        if (pod := self.pods.pop(uid, None)) is not None:
            self.on_gone(replace(pod, there_at=max(since, self._unanswered_at()) if since else 0.0))
            self.on_change()


class ClusterWatch:
    """The changes of the cluster, as kopf hands them on: of several that come at once all, or the last one alone."""

    def __init__(self, timeline: Timeline, server: ApiServer, hand_on: Callable[[Json], None]) -> None:
        self._timeline = timeline
        self._server = server
        self._hand_on = hand_on
        self.cut_until = 0.0
        self._position: int | None = None

    @property
    def is_synced(self) -> bool:
        """Whether it has listed, and goes on from that."""
        return self._position is not None

    def expire(self) -> None:
        """Have it list anew."""
        self._position = None

    def read(self) -> None:
        """Hand on what can be heard now."""
        now, position = self._timeline.now, self._position
        if now < self.cut_until:
            return
        if position is None:
            self._hand_on(self._server.cluster)
        elif now < self._server.behind_until or position == len(self._server.cluster_events):
            return
        else:
            events = self._server.cluster_events[position:]
            for body in events[-1:] if self._timeline.chance.random() < _LAST_ALONE else events:
                self._hand_on(body)
        self._position = len(self._server.cluster_events)
