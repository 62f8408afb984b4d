"""The one error that a user of `KubeCluster` meets."""

from __future__ import annotations


class KubeClusterError(RuntimeError):
    """What did not work, why, and what to do next.

    Attributes:
        reason: why, in the words of who said it (the API server, the operator's status).
        next_step: what to write or type instead.
        status: the API server's HTTP status, 0 where it was not asked or did not answer.
    """

    def __init__(self, what: str, *, reason: str, next_step: str, status: int = 0) -> None:
        super().__init__(f"{what}: {reason.rstrip('.')}. {next_step}")
        self.reason = reason
        self.next_step = next_step
        self.status = status
