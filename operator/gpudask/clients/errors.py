"""Errors of the clients: one type for the API server, one for the scheduler, and what callers have to know apart."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from gpudask.api.untrusted_text import quote

# How the API server names what denied a request.
# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
# https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
_DENIALS = ("admission webhook", "ValidatingAdmissionPolicy")
QUOTA_EXCEEDED = "exceeded quota"  # the API server's words
_SHOWN_LENGTH = 1000  # of a refusal's message: those of a large object have tens of thousands


class ApiError(Exception):
    """The API server refused a request, or could not be reached (`status` 0).

    As a text it is one line of a log: the API server repeats what somebody wrote, and lists fields line by line.
    """

    def __init__(
        self, status: int, reason: str, message: str, request: str, *, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{request}: {status} {reason}: {quote(message, _SHOWN_LENGTH)}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds  # of its header Retry-After

    @property
    def not_found(self) -> bool:
        """Whether the object does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def object_not_found(self) -> bool:
        """Whether the object does not exist, by the API server itself, not one that starts, or a proxy."""
        return self.not_found and self.reason == "NotFound"

    @property
    def conflict(self) -> bool:
        """Whether the object exists already, or is not as the request assumed."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def already_exists(self) -> bool:
        """Whether there is an object of this name, which the one to be created conflicts with."""
        return self.conflict and self.reason == "AlreadyExists"

    @property
    def gone(self) -> bool:
        """Whether a watch's resource version is too old."""
        return self.status == HTTPStatus.GONE

    @property
    def quota(self) -> bool:
        """Whether a ResourceQuota refused a creation: the API server answers 403."""
        return self.status == HTTPStatus.FORBIDDEN and QUOTA_EXCEEDED in self.message

    @property
    def forbidden(self) -> bool:
        """Whether a permission or a policy refused it."""
        return (self.status == HTTPStatus.FORBIDDEN and not self.quota) or self.denied

    @property
    def denied(self) -> bool:
        """Whether an admission webhook or policy refused it, for which each chooses its own status."""
        if self.status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY):
            return False
        return any(mark in self.message for mark in _DENIALS)

    @property
    def ending(self) -> bool:
        """Whether the namespace is being deleted, and takes nothing new."""
        return self.status == HTTPStatus.FORBIDDEN and "because it is being terminated" in self.message

    @property
    def invalid(self) -> bool:
        """Whether the object itself is at fault: an edit is the cure."""
        return self.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY) and not self.denied

    @property
    def refused(self) -> bool:
        """Whether the API server understood and refused the request: something has to change, in it or around it."""
        return self.conflict or self.invalid or self.quota or self.forbidden


class PageTooLargeError(Exception):
    """A page of a list has more bytes than are read at a time: fewer objects have to be asked for."""


class ClusterGoneError(Exception):
    """The cluster does not exist any more; its loop ends."""


class SchedulerTrouble(StrEnum):
    """How a request to the scheduler failed."""

    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    NO_PRELOAD = "no preload"
    REFUSED = "refused"
    PROTOCOL = "protocol"


class SchedulerError(Exception):
    """The Dask scheduler did not answer, or not by docs/preload-protocol.md."""

    def __init__(self, trouble: SchedulerTrouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble

    @classmethod
    def without_address(cls) -> SchedulerError:
        """The error of a scheduler whose pod does not run."""
        return cls(SchedulerTrouble.UNREACHABLE, "its pod does not run")
