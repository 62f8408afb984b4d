"""What can go wrong at the edge, one type for each side."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus


class ApiError(Exception):
    """The API server refused a request, or could not be reached (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def not_found(self) -> bool:
        """Whether the object does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Whether the object exists already, or is not as the request assumed."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def gone(self) -> bool:
        """Whether a watch's resource version is too old."""
        return self.status == HTTPStatus.GONE

    @property
    def quota(self) -> bool:
        """Whether a ResourceQuota refused a creation: the API server says it as 403."""
        return self.status == HTTPStatus.FORBIDDEN and "exceeded quota" in self.message

    @property
    def forbidden(self) -> bool:
        """Whether a permission or a policy refused it."""
        return self.status == HTTPStatus.FORBIDDEN and not self.quota

    @property
    def ending(self) -> bool:
        """Whether the namespace is being deleted, and takes nothing new."""
        return self.status == HTTPStatus.FORBIDDEN and "because it is being terminated" in self.message

    @property
    def invalid(self) -> bool:
        """Whether the object itself is at fault, so that trying again is in vain."""
        return self.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class SchedulerTrouble(StrEnum):
    """How a request to the scheduler failed."""

    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    NO_PRELOAD = "no preload"
    REFUSED = "refused"
    PROTOCOL = "protocol"


class SchedulerError(Exception):
    """The Dask scheduler did not answer as docs/preload-protocol.md says."""

    def __init__(self, trouble: SchedulerTrouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble
