"""The types and reasons of conditions and events, and the causes of GPU-seconds.

The client reads them, too, which loads no models for it.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """The conditions; `Ready` is what `kubectl wait` and GitOps tools look at."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    SCHEDULER_READY = "SchedulerReady"
    DEMAND_SERVABLE = "DemandServable"
    DEGRADED = "Degraded"
    MIRRORED = "Mirrored"
    ISOLATED = "Isolated"
    LEASED = "Leased"


class Reason(StrEnum):
    """Stable reasons of conditions and events: programs may compare them."""

    ALL_READY = "AllReady"
    PODS_MISSING = "PodsMissing"
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    VALID = "Valid"
    INVALID = "Invalid"
    LIMIT = "LimitExceeded"
    TEMPLATE_REFUSED = "TemplateRefused"
    NAME_CONFLICT = "NameConflict"
    OVERRIDE_IGNORED = "OverrideIgnored"
    SCHEDULER_RUNNING = "SchedulerRunning"
    SCHEDULER_PENDING = "SchedulerPending"
    SCHEDULER_UNREACHABLE = "SchedulerUnreachable"
    SCHEDULER_RESTARTED = "SchedulerRestarted"
    SCHEDULER_OUTDATED = "SchedulerWaitsForRollout"
    PRELOAD_FAILED = "PreloadFailed"
    DEMAND_UNKNOWN = "DemandUnknown"
    SERVABLE = "Servable"
    UNSERVABLE = "NoPoolServes"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    IMAGE = "ImageNotPulled"
    CRASHING = "PodsFail"
    UNREGISTERED = "WorkerNotRegistered"
    NOT_LISTENING = "SchedulerNotListening"
    API_FAILED = "ApiServerFailed"
    OPERATOR_FAILED = "OperatorFailed"
    DRAIN_BLOCKED = "DrainBlocked"
    DRAIN_HANGS = "DrainHangs"
    DRAIN_FORCED = "DrainForced"
    TERMINATING = "PodsTerminating"
    DEVICE_SICK = "DeviceSick"
    FROZEN = "Frozen"
    HEALTHY = "Healthy"
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    POD_REPLACED = "PodReplaced"
    FALLBACK_STARTED = "FallbackStarted"
    FALLBACK_ENDED = "FallbackEnded"
    IDLE_TOO_LONG = "IdleTooLong"
    CLIENTS_CONNECTED = "ClientsConnected"
    NO_CLIENT = "NoClient"
    CLIENTS_UNKNOWN = "ClientsUnknown"
    DISCONNECTED_TOO_LONG = "DisconnectedTooLong"
    MIRRORED = "Mirrored"
    MIRROR_REFUSED = "MirrorRefused"
    NETWORK_POLICY_APPLIED = "NetworkPolicyApplied"
    NETWORK_POLICY_OFF = "NetworkPoliciesOff"
    NETWORK_POLICY_FAILED = "NetworkPolicyFailed"
    MIRROR_DELETED = "DaskClusterDeleted"
    SERVED = "Served"
    NAME_TAKEN = "NameTaken"
    NO_CLUSTER = "NoDaskCluster"
    CARRIED_OVER = "CarriedOver"
    NOT_CARRIED_OVER = "NotCarriedOver"
    COMMAND_REPLACED = "CommandReplaced"
    WORK_IN_PROGRESS = "WorkInProgress"


class Cause(StrEnum):
    """Why a pod holds a GPU at a moment, in the order of precedence: the first that fits (docs/ledger.md)."""

    WORKING = "working"  # a task of the pool's own runs on it
    UNHEALTHY = "unhealthy"  # its device fails, or its worker crashed, or vanished after it was registered
    STARTING = "starting"  # it has a node, and its workers were never registered yet
    DRAINING = "draining"  # it retires, or is being deleted
    FROZEN = "frozen"  # its pool cannot follow: the scheduler is silent, or its size is frozen
    HELD_RESULT = "heldResult"  # it is idle past the timeout, or retires, and what it holds keeps it
    HELD_BY_USER = "heldByUser"  # an override, a hold, or a fixed size keeps it
    SPARE = "spare"  # the pool's minimum keeps it
    WAITING_IDLE_TIMEOUT = "waitingIdleTimeout"  # anything else: as a rule its idle time is not over
