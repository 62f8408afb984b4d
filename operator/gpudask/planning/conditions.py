"""The conditions of the status, one function each, and its phase, which follows from them."""

from __future__ import annotations

from typing import Literal

from gpudask.api.pod_template import reserved
from gpudask.api.pool import Pool
from gpudask.api.reasons import ConditionType, Reason
from gpudask.api.spec import Spec
from gpudask.api.status import Condition, Phase, PoolStatus, Status, epoch, iso
from gpudask.planning import listening, scheduler
from gpudask.planning.actions import Plan
from gpudask.planning.degraded import (
    failure_message,
    kept_after_deletion,
    trouble,
    trouble_of_scheduler,
)
from gpudask.planning.fallback import FEATURE as OFFERS
from gpudask.planning.observed.observation import Observation
from gpudask.planning.pool_view import PoolView
from gpudask.scaling.assignment import unserved_message

# Of many requirements that no pool serves, or features that are off, so many are named.
_NAMED = 10
_LAST_DATE = 253402300799.0  # 9999-12-31, in seconds since the epoch
_CLIENTS = "clients"  # the preload's feature
_NOT_HEARD = "the scheduler has not been heard yet"
_STARTED_SECONDS = 20.0  # a scheduler's HTTP server answers a moment before its preload does
_MESSAGE_LIMIT = 32768  # of a condition, by Kubernetes' API conventions

Verdict = tuple[Literal["True", "False", "Unknown"], str, str]


def with_conditions(observation: Observation, plan: Plan, status: Status, before: Status) -> Status:
    """`status` with its conditions, phase and reason."""
    verdicts: dict[str, Verdict] = {
        ConditionType.ACCEPTED: _accepted(observation),
        ConditionType.SCHEDULER_READY: _scheduler_ready(observation),
        ConditionType.DEMAND_SERVABLE: _demand_servable(observation, plan),
        ConditionType.DEGRADED: _degraded(observation, plan, status),
        ConditionType.READY: _ready(observation, status, before),
        ConditionType.ISOLATED: _isolated(observation),
    }
    if observation.mirror is not None:
        verdicts[ConditionType.MIRRORED] = _mirrored(observation.mirror)
    if observation.cluster.spec.idle.shutdown_after_disconnect is not None:
        verdicts[ConditionType.LEASED] = _leased(observation, status)
    accepted = verdicts[ConditionType.ACCEPTED]
    if accepted[0] == "False":
        verdicts[ConditionType.READY] = accepted
    return with_verdicts(status, verdicts, before, observation.now)


def with_verdicts(status: Status, verdicts: dict[str, Verdict], before: Status, now: float) -> Status:
    """`status` with these conditions; a transition time moves only when a condition's status does."""
    earlier = {condition.type: condition for condition in before.conditions}
    conditions = []
    for kind, (value, why, message) in verdicts.items():
        old = earlier.get(kind)
        since = old.last_transition_time if old and old.status == value else iso(now, to="seconds")
        conditions.append(
            Condition(
                type=kind,
                status=value,
                reason=why,
                message=message[:_MESSAGE_LIMIT],
                observed_generation=status.observed_generation,
                last_transition_time=since,
            )
        )
    phase, reason = _phase(verdicts)
    return status.model_copy(update={"conditions": conditions, "phase": phase, "reason": reason})


def invalid(message: str, *, generation: int, before: Status, now: float, reason: Reason = Reason.INVALID) -> Status:
    """The status of a spec that cannot be acted on, or may not be: what exists is left as it is."""
    verdicts: dict[str, Verdict] = {
        ConditionType.ACCEPTED: ("False", reason, message),
        ConditionType.READY: ("False", reason, message),
    }
    kept = before.model_copy(update={"observed_generation": generation})
    return with_verdicts(kept, verdicts, before, now)


def defect(message: str, *, before: Status, now: float) -> Status:
    """The status of a cluster on which the operator itself fails: the last one, but for Degraded."""
    kept = {condition.type: condition for condition in before.conditions}
    verdicts: dict[str, Verdict] = {
        kind: (condition.status, condition.reason, condition.message) for kind, condition in kept.items()
    }
    verdicts.setdefault(ConditionType.ACCEPTED, ("Unknown", Reason.OPERATOR_FAILED, message))
    verdicts.setdefault(ConditionType.READY, ("Unknown", Reason.OPERATOR_FAILED, message))
    return with_verdicts(
        before, verdicts | {ConditionType.DEGRADED: ("True", Reason.OPERATOR_FAILED, message)}, before, now
    )


def _accepted(observation: Observation) -> Verdict:
    for name, memory in observation.memory.items():
        if memory.refusal_reason == Reason.TEMPLATE_REFUSED:
            where = f"pool {name}" if name else "scheduler"
            return "False", Reason.TEMPLATE_REFUSED, f"{where}: {memory.refusal}"
    known = {pool.name for pool in observation.cluster.spec.pools}
    unknown = [override.pool for override in observation.written.overrides if override.pool not in known]
    if unknown:
        return (
            "True",
            Reason.OVERRIDE_IGNORED,
            f"overrides of pools that do not exist: {', '.join(unknown)}: remove them",
        )
    left_out = _left_out(observation.cluster.spec)
    if left_out:
        return (
            "True",
            Reason.VALID,
            f"left out, because they belong to the operator: {', '.join(left_out)}: remove them",
        )
    return "True", Reason.VALID, ""


def _left_out(spec: Spec) -> list[str]:
    """The keys of metadata that no object gets, with their fields: an older CRD let them in."""
    templates = {"template": spec.template, "scheduler.template": spec.scheduler.template}
    templates |= {f"pools[{number}].template": pool.template for number, pool in enumerate(spec.pools)}
    written = {"spec.scheduler.service.annotations": spec.scheduler.service.annotations}
    for path, template in templates.items():
        written[f"spec.{path}.metadata.labels"] = template.metadata.labels
        written[f"spec.{path}.metadata.annotations"] = template.metadata.annotations
    return [f"{path}: {key}" for path, keys in written.items() for key in reserved(keys)]


def _scheduler_ready(observation: Observation) -> Verdict:
    pod = observation.scheduler
    if observation.cluster.spec.suspend and pod is None:
        return "False", Reason.SUSPENDED, "suspended by spec.suspend"
    if pod is None:
        refused = trouble_of_scheduler(observation)
        return "False", Reason.SCHEDULER_PENDING, refused[1] if refused is not None else "no scheduler pod yet"
    if not pod.ready:
        if (found := trouble_of_scheduler(observation)) is not None:
            return "False", Reason.SCHEDULER_PENDING, found[1]
        return "False", Reason.SCHEDULER_PENDING, f"{pod.name}: {pod.unschedulable or pod.waiting or 'starting'}"
    if scheduler.outdated(observation, pod):
        waits = "holds tasks or results" if observation.cluster.spec.rollout == "WhenIdle" else "runs tasks"
        if observation.demand is None:
            waits = "does not say what it holds: delete the pod to replace it all the same"
        kept = [
            f"the {field} {value}" for field, value in scheduler.kept_for_scheduler(observation.written, pod).items()
        ]
        with_it = f"; workers meanwhile keep {' and '.join(kept)}" if kept else ""
        return "True", Reason.SCHEDULER_OUTDATED, f"{pod.name} keeps its older spec while it {waits}{with_it}"
    off = _features_off(observation)
    return ("True", Reason.PRELOAD_FAILED, off) if off else ("True", Reason.SCHEDULER_RUNNING, "")


def _features_off(observation: Observation) -> str:
    """The preload's features that are off, each with its reason; empty: none."""
    if observation.preload_unavailable:
        return observation.demand_problem
    if observation.demand is None:
        return ""
    features = observation.demand.features
    messages = [f"{name} is off: {why}" for name, why in features.items() if why][:_NAMED]
    spec, newer = observation.cluster.spec, []
    if OFFERS not in features and any(pool.fallback for pool in spec.pools):
        newer.append("fallback")
    if observation.demand.idle_seconds is None and spec.idle.delete_after is not None:
        newer.append("idle.deleteAfter")
    if listening.FEATURE not in features and any(spec.own_protocol(pool) for pool in spec.pools):
        newer.append("pools.protocol")
    if _CLIENTS not in features and spec.idle.shutdown_after_disconnect is not None:
        newer.append("idle.shutdownAfterDisconnect")
    later = "it works once the scheduler pod is replaced"
    messages += [f"the scheduler's preload is older than {field}: {later}" for field in newer]
    return "; ".join(messages)


def _demand_servable(observation: Observation, plan: Plan) -> Verdict:
    if observation.demand is None:
        return "Unknown", Reason.DEMAND_UNKNOWN, observation.demand_problem or _NOT_HEARD
    if plan.assignment.unserved:
        unserved = plan.assignment.unserved
        message = "; ".join(
            unserved_message(observation.cluster.spec, requirement) for requirement in unserved[:_NAMED]
        )
        if len(unserved) > _NAMED:
            message += f"; and {len(unserved) - _NAMED} more kinds"
        return "False", Reason.UNSERVABLE, message
    if observation.demand.ignored:
        message = "; ".join(observation.demand.ignored[:_NAMED])
        return "False", Reason.UNSERVABLE, f"{message}: write a name and a number, as in resources={{'GPU': 1}}"
    return "True", Reason.SERVABLE, ""


def _degraded(observation: Observation, plan: Plan, status: Status) -> Verdict:
    if observation.failures:
        return (
            "True",
            observation.failures[0].reason,
            "; ".join(failure_message(failure) for failure in observation.failures[:_NAMED]),
        )
    if (of_scheduler := trouble_of_scheduler(observation)) is not None:
        return "True", of_scheduler[0], f"scheduler: {of_scheduler[1]}"
    if observation.demand_problem and observation.scheduler is not None and observation.scheduler.ready:
        reason = Reason.PRELOAD_FAILED if observation.preload_unavailable else Reason.SCHEDULER_UNREACHABLE
        since = min((pool.frozen_since for pool in status.pools if pool.frozen_since), default="")
        return "True", reason, f"{observation.demand_problem}; sizes stay{f' since {since}' if since else ''}"
    for pool in status.pools:
        if pool.frozen_since and pool.gpus_held:
            why = plan.pools[pool.name].frozen
            message = f"pool {pool.name} holds {pool.gpus_held} GPUs and is frozen since {pool.frozen_since}: {why}"
            return "True", Reason.FROZEN, message
    for pool in status.pools:
        found = trouble(observation, pool)
        if found is not None:
            reason, message = found
            return "True", reason, f"{'removed ' if pool.removed else ''}pool {pool.name}: {message}"
    kept = kept_after_deletion(observation, observation.schedulers).trouble
    return ("True", kept[0], f"scheduler: {kept[1]}") if kept else ("False", Reason.HEALTHY, "")


def _mirrored(refusal: str) -> Verdict:
    return ("False", Reason.MIRROR_REFUSED, refusal) if refusal else ("True", Reason.MIRRORED, "")


def _isolated(observation: Observation) -> Verdict:
    """The condition Isolated: about the NetworkPolicy; whether the network enforces it, Kubernetes does not say."""
    if observation.network is None:
        off = "the chart's networkPolicies is false: whatever reaches a pod of the cluster may connect"
        return "False", Reason.NETWORK_POLICY_OFF, off
    if observation.network:
        return "False", Reason.NETWORK_POLICY_FAILED, f"there is no NetworkPolicy as wanted: {observation.network}"
    peers = len(observation.cluster.spec.network.allow_from)
    more = (
        f" and the {peers} peers of spec.network.allowFrom" if peers > 1 else " and the peer of spec.network.allowFrom"
    )
    own = "the cluster's own pods, the operator"
    who = f"{own}{more}" if peers else own.replace(", ", " and ")
    message = f"{who} may connect, nobody else, where the network enforces NetworkPolicies"
    return "True", Reason.NETWORK_POLICY_APPLIED, message


def _leased(observation: Observation, status: Status) -> Verdict:
    """The condition Leased: whether a client keeps the cluster, and when it goes if none comes."""
    idle, demand = observation.cluster.spec.idle, observation.demand
    assert idle.disconnect_seconds is not None
    if observation.cluster.spec.suspend:
        return "Unknown", Reason.SUSPENDED, "while it is suspended the cluster is kept"
    if demand is None or demand.clients is None:
        why = "scheduler is not heard now" if demand is None else "scheduler's preload does not count clients"
        return "Unknown", Reason.CLIENTS_UNKNOWN, f"the {why}: no time counts"
    since = epoch(status.scheduler.disconnected_since)
    if since is not None:
        last = "no client has been connected" if demand.clients.ever else "no client has come"
        at = iso(min(since + idle.disconnect_seconds, _LAST_DATE), to="seconds")
        message = f"{last} since {iso(since, to='seconds')}: the cluster is deleted at {at} unless one comes"
        return "False", Reason.NO_CLIENT, f"{message} (spec.idle.shutdownAfterDisconnect)"
    if demand.clients.connected:
        return "True", Reason.CLIENTS_CONNECTED, f"clients: {demand.clients.connected}"
    if demand.clients.ever:
        return "True", Reason.CLIENTS_CONNECTED, "a program was seen within the last two minutes"
    return "Unknown", Reason.CLIENTS_UNKNOWN, "no client has come yet"


def _ready(observation: Observation, status: Status, before: Status) -> Verdict:
    """The condition Ready: the scheduler is, and each pool has its fixed or least number of pods.

    Not before the scheduler has answered, which alone knows of workers, unless it has no preload and never will. An
    answer that fails later changes nothing.
    """
    if observation.cluster.spec.suspend:
        left = len(observation.pods)
        if left:
            return "False", Reason.SUSPENDING, f"{left} pods still finish"
        return "False", Reason.SUSPENDED, "suspended by spec.suspend"
    if not status.scheduler.ready:
        return "False", Reason.SCHEDULER_PENDING, _scheduler_ready(observation)[2]
    was_ready = any(c.type == ConditionType.READY and c.status == "True" for c in before.conditions)
    if observation.demand is None and not was_ready and not _lacks_preload(observation):
        return "False", Reason.SCHEDULER_PENDING, observation.demand_problem or _NOT_HEARD
    pools = {pool.name: pool for pool in observation.cluster.spec.pools}
    short = [p for p in status.pools if not p.removed and p.ready < _least(pools[p.name], p)]
    if short:
        return "False", Reason.PODS_MISSING, ", ".join(_shortage(observation, pools[p.name], p) for p in short)
    return "True", Reason.ALL_READY, ""


def _lacks_preload(observation: Observation) -> bool:
    """True if the scheduler has no preload; for a moment that seems so while it starts."""
    head = observation.scheduler
    return (
        observation.preload_unavailable
        and head is not None
        and head.running
        and observation.now - head.started >= _STARTED_SECONDS
    )


def _shortage(observation: Observation, pool: Pool, status: PoolStatus) -> str:
    """A message about the missing pods of `pool`, and those that only lack registered workers."""
    view = PoolView(observation, pool)
    running = [pod for pod in view.pods if pod.live and pod.running]
    silent = sum(1 for pod in running if not view.is_complete(pod)) if observation.knows_demand else 0
    but = f" ({silent} run, but not all of their workers are registered)" if silent else ""
    waits = f": {waits}" if (waits := listening.message(observation, pool)) else ""
    return f"pool {pool.name} has {status.ready} of {_least(pool, status)} pods{but}{waits}"


def _least(pool: Pool, status: PoolStatus) -> int:
    return min(status.desired, pool.autoscale.min) if pool.autoscale else status.desired


def _phase(verdicts: dict[str, Verdict]) -> tuple[Phase, str]:
    accepted, ready = verdicts[ConditionType.ACCEPTED], verdicts[ConditionType.READY]
    degraded = verdicts.get(ConditionType.DEGRADED, ("False", Reason.HEALTHY, ""))
    servable = verdicts.get(ConditionType.DEMAND_SERVABLE, ("True", Reason.SERVABLE, ""))
    if accepted[0] == "False":
        return Phase.INVALID, f"{accepted[1]}: {accepted[2]}"
    if ready[1] in (Reason.SUSPENDED, Reason.SUSPENDING):
        return (Phase.SUSPENDED if ready[1] == Reason.SUSPENDED else Phase.SUSPENDING), ready[2]
    if degraded[0] == "True":
        return Phase.DEGRADED, f"{degraded[1]}: {degraded[2]}"
    if ready[0] != "True":
        return Phase.PENDING, ready[2]
    return Phase.RUNNING, "" if servable[0] != "False" else f"{servable[1]}: {servable[2]}"
