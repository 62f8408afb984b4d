"""A ResourceQuota of the namespace, which people set and lift: what it has no room for is refused."""

from __future__ import annotations

from functools import partial

from gpudask.api import Json
from gpudask.api.resource import GROUP, KIND, PLURAL
from tests.clients.fake_api_server import Answer, refusal
from tests.orders.api_server import Event, SlowApiServer, is_finished

PODS, GPUS, CLUSTERS = "pods", "requests.nvidia.com/gpu", f"count/{PLURAL}.{GROUP}"
_NAME = "few"
_RECOUNT_SECONDS = 5.0  # until Kubernetes has counted at most what went


class Quota:
    """How much there may be of what: `hard`, as a ResourceQuota has it, of resources that are not named any number."""

    def __init__(self, server: SlowApiServer) -> None:
        self._server = server
        self.hard: dict[str, int] = {}
        self._used: dict[str, dict[str, int]] = {}  # by uid
        server.listeners.append(self._see)
        server.admit = self._admit

    def _see(self, event: Event) -> None:
        uid = event.body["metadata"]["uid"]
        if event.type == "ADDED":
            self._used[uid] = _charge(event.body)
        elif uid in self._used and (event.type == "DELETED" or is_finished(event.body)):
            self._server.later(self._server.chance.uniform(0.0, _RECOUNT_SECONDS), partial(self._used.pop, uid, None))

    def _admit(self, body: Json) -> Answer | None:
        """The refusal of a creation; None: there is room. The words are Kubernetes' own."""
        charge = _charge(body)
        used = {what: sum(each.get(what, 0) for each in self._used.values()) for what in charge}
        over = [what for what in charge if used[what] + charge[what] > self.hard.get(what, 1_000_000)]
        if not over:
            return None
        parts = [
            f"{about}: {','.join(f'{what}={amounts[what]}' for what in over)}"
            for about, amounts in (("requested", charge), ("used", used), ("limited", self.hard))
        ]
        plural = "pods" if PODS in charge else f"{PLURAL}.{GROUP}"
        name = body["metadata"]["name"]
        message = f'{plural} "{name}" is forbidden: exceeded quota: {_NAME}, {", ".join(parts)}'
        return refusal(403, message, "Forbidden")


def _charge(body: Json) -> dict[str, int]:
    """What an object takes of a quota."""
    if body.get("kind") == KIND:
        return {CLUSTERS: 1}
    if body.get("kind") != "Pod":
        return {}
    containers = body["spec"]["containers"]
    limits = [each.get("resources", {}).get("limits", {}) for each in containers]
    gpus = sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)
    return {PODS: 1} | ({GPUS: gpus} if gpus else {})
