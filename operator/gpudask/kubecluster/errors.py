"""The one error that a user of `KubeCluster` meets."""

from __future__ import annotations

from http import HTTPStatus


class KubeClusterError(RuntimeError):
    """What did not work, why, and what to do next.

    Attributes:
        reason: why, as whoever said it put it (the API server, the operator's status).
        next_step: what to write or type instead.
        status: the API server's HTTP status, 0 where it was not asked or did not answer.
        unanswered: it was asked, and did not answer.
    """

    def __init__(self, what: str, *, reason: str, next_step: str, status: int = 0, unanswered: bool = False) -> None:
        super().__init__(f"{what}: {reason.rstrip('.')}. {next_step}")
        self.reason = reason
        self.next_step = next_step
        self.status = status
        self.unanswered = unanswered

    @property
    def may_pass(self) -> bool:
        """Whether the same may be answered a little later: the API server was silent, fails (5xx) or is busy (429)."""
        is_passing = self.status == HTTPStatus.TOO_MANY_REQUESTS or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.unanswered or is_passing
