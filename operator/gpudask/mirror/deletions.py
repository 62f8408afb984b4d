"""What somebody deleted of one cluster's mirror: remembered until what it means is done, whatever fails meanwhile."""

from __future__ import annotations

from gpudask.mirror.state import Mirrored


class Deletions:
    """Deleted objects by uid, without those that the operator deleted itself."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}  # uid -> kind
        self._ours: set[str] = set()

    def seen(self, item: Mirrored) -> None:
        """An object is gone."""
        if item.uid not in self._ours:
            self._pending[item.uid] = item.kind
        self._ours.discard(item.uid)

    def pending(self) -> dict[str, str]:
        """Uid -> kind of what was deleted and not yet acted on, as of now."""
        return dict(self._pending)

    def forget(self) -> None:
        """What was deleted went with its definition, and meant nothing."""
        self._pending.clear()
        self._ours.clear()

    def done(self, deleted: dict[str, str]) -> None:
        """What these meant is done; what was deleted since `pending` gave them is not."""
        for uid in deleted:
            self._pending.pop(uid, None)

    def concerns(self, kind: str) -> bool:
        """Whether an object of `kind` was deleted, and nobody acted on it yet."""
        return kind in self._pending.values()

    def expect(self, uid: str) -> None:
        """The operator is about to delete this one itself."""
        self._ours.add(uid)

    def expect_no_more(self, uid: str) -> None:
        """The operator's own deletion failed."""
        self._ours.discard(uid)
