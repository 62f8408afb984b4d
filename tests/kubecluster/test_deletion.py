"""The deletion of a cluster whose creation was not answered, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from gpudask.kubecluster.deletion import OwnCluster, at_exit
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.timing import Clock, Timing

BODY = {"metadata": {"name": "mine"}}


class SlowServer:
    """One that answers no creation, and whose answers to questions are as old as they took."""

    def __init__(self, *look_seconds: float, created_at: float) -> None:
        self.namespace = "lab"
        self.now = 0.0
        self.deleted: list[str] = []
        self.timing = Timing(clock=Clock(monotonic=lambda: self.now, sleep=self._sleep), creation_seconds=5.0)
        self._look_seconds = list(look_seconds)
        self._created_at = created_at
        self._created: dict[str, Any] = {}

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        self._created = {"metadata": {**body["metadata"], "uid": "of mine"}}
        raise KubeClusterError("cannot create cluster 'mine'", reason="no answer", next_step="Wait", unanswered=True)

    async def find(self, _: str) -> dict[str, Any] | None:
        found = self._created if self.now >= self._created_at and not self.deleted else None
        self.now += self._look_seconds.pop(0) if self._look_seconds else 0.0
        return found

    async def delete(self, _: str, *, uid: str) -> None:
        self.deleted.append(uid)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("look_seconds", "created_at", "deleted"),
    [
        ((0.0, 6.0), 3.0, ["of mine"]),
        ((0.0,), 4.5, ["of mine"]),
        ((0.0,), 1e9, []),
    ],
    ids=["while the answer to a look is on its way", "between two looks", "never"],
)
async def test_a_creation_without_an_answer_is_looked_for_until_none_can_come(
    look_seconds: tuple[float, ...], created_at: float, deleted: list[str]
):
    server = SlowServer(*look_seconds, created_at=created_at)
    own = OwnCluster(server, "mine")  # type: ignore[arg-type]
    with pytest.raises(KubeClusterError, match="no answer"):
        await own.create(BODY)
    await own.delete(60.0)
    assert server.deleted == deleted
    assert own not in at_exit
