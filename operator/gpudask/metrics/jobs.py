"""What is exported of jobs and cron jobs: how many of which phase, why they wait, and what became of cron jobs' times.

No series is one job's: somebody may make thousands. A namespace has at most MAX_SERIES of jobs, and MAX_CRON_JOBS cron
jobs of MAX_CRON_JOB_SERIES each; its others count in `gpudask_cronjobs` alone. No label is what a tenant wrote, but
the names of objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gpudask.api.attribution import clean
from gpudask.api.cron_job import CronJobConditionType, CronJobReason, CronJobStatus
from gpudask.api.job import JobPhase, JobReason
from gpudask.api.status import epoch
from gpudask.metrics import families
from gpudask.metrics.exposition import labels, sample

MAX_SERIES = len(families.JOB_PHASES) + len(families.JOB_REASONS) + 1
MAX_CRON_JOBS = 200  # of a namespace, those that came first
MAX_CRON_JOB_SERIES = 6 + len(CronJobConditionType)
_CONDITIONS, _REASONS = frozenset(CronJobConditionType), frozenset(CronJobReason)
_VALUES = {"True": 1, "False": 0, "Unknown": -1}


@dataclass(frozen=True, slots=True)
class JobState:
    """A job at a moment. `waits_for`: why its program does not run, where that is not meant so; empty: it is, or runs.

    `since`: when a job that was not known to wait has begun to, in seconds on the operator's clock.
    """

    phase: JobPhase
    waits_for: JobReason | None = None
    since: float = 0.0


@dataclass(slots=True)
class _Namespace:
    """The jobs and cron jobs of one namespace, counted as they change."""

    phases: Counter[JobPhase] = field(default_factory=Counter)
    reasons: Counter[JobReason] = field(default_factory=Counter)
    waiting: dict[str, float] = field(default_factory=dict)  # by a job's key: since when it waits
    cron_jobs: dict[str, Callable[[str], list[str]]] = field(default_factory=dict)  # samples by family, by key

    def add(self, key: str, state: JobState) -> None:
        self.phases[state.phase] += 1
        if state.waits_for is not None:
            self.reasons[state.waits_for] += 1
            self.waiting[key] = state.since

    def remove(self, key: str, state: JobState) -> None:
        self.phases[state.phase] -= 1
        if state.waits_for is not None:
            self.reasons[state.waits_for] -= 1
            del self.waiting[key]

    @property
    def is_empty(self) -> bool:
        return not self.cron_jobs and not +self.phases


class JobMetrics:
    """The jobs and cron jobs that the leader runs. `released`: called with the seconds that GPUs were held on."""

    def __init__(self, released: Callable[[float], None] = lambda _seconds: None) -> None:
        self._released = released
        self._namespaces: dict[str, _Namespace] = {}
        self._jobs: dict[str, JobState] = {}
        self._held: dict[str, _Held] = {}  # by the uid of a pod with GPUs

    # jobs; `key`: an `owner_key`, which begins with the namespace

    def set_job(self, key: str, state: JobState) -> None:
        """Export a job so from now on. One that waited before, be it for something else, waits since then."""
        of, before = self._of(key), self._jobs.get(key)
        if before is not None:
            of.remove(key, before)
            if before.waits_for is not None and state.waits_for is not None:
                state = JobState(state.phase, state.waits_for, before.since)
        of.add(key, state)
        self._jobs[key] = state

    def forget_job(self, key: str) -> None:
        """Export a job no more."""
        if (before := self._jobs.pop(key, None)) is not None:
            self._of(key).remove(key, before)
            self._tidy(key)

    # cron jobs

    def set_cron_job(self, key: str, name: str, status: CronJobStatus, *, suspended: bool) -> None:
        """Export a cron job so from now on. `suspended`: by its spec."""
        values: dict[str, float | None] = {
            families.CRON_JOB_ACTIVE.name: len(status.active),
            families.CRON_JOB_SUSPENDED.name: int(suspended),
            families.CRON_JOB_MISSED.name: status.missed,
            families.CRON_JOB_NEXT.name: epoch(status.next_schedule_time),
            families.CRON_JOB_LAST.name: epoch(status.last_schedule_time),
            families.CRON_JOB_LAST_SUCCESS.name: epoch(status.last_successful_time),
        }
        identity = labels({"namespace": _namespace(key), "cronjob": clean(name)})
        conditions = {each.type: each for each in status.conditions if each.type in _CONDITIONS}
        told = [
            (labels({"condition": kind, "reason": each.reason if each.reason in _REASONS else "Other"}), each.status)
            for kind, each in conditions.items()
        ]

        def samples(family: str) -> list[str]:
            if family == families.CRON_JOB_CONDITION.name:
                return [sample(family, f"{identity},{extra}", _VALUES[value]) for extra, value in told]
            value = values.get(family)
            return [] if value is None else [sample(family, identity, value)]

        self._of(key).cron_jobs[key] = samples

    def forget_cron_job(self, key: str) -> None:
        """Export a cron job no more."""
        self._of(key).cron_jobs.pop(key, None)
        self._tidy(key)

    # GPUs

    def runner_ended(self, pods: Iterable[str], at: float) -> None:
        """A runner's end was seen while these pods of its job's own cluster, by uid, held GPUs.

        `at`: seconds on the operator's clock. A pod of which that was said before counts since then.
        """
        new = {uid for uid in pods if uid not in self._held}
        self._held |= dict.fromkeys(new, _Held(at, new))

    def pod_gone(self, uid: str, now: float) -> None:
        """A pod does not exist any more: the last one of those gives the GPUs back."""
        if (held := self._held.pop(uid, None)) is None:
            return
        held.pods.discard(uid)
        if not held.pods:
            self._released(max(0.0, now - held.at))

    # what is read

    def samples(self, family: families.Family, now: float) -> Iterator[str]:
        """The samples of one of `families.JOB_FAMILIES`, as lines. `now`: on the operator's clock."""
        for name, of in tuple(self._namespaces.items()):
            identity = labels({"namespace": name})
            match family.name:
                case families.JOBS.name:
                    for phase in families.JOB_PHASES:
                        extra = labels({"phase": phase})
                        yield sample(family.name, f"{identity},{extra}", of.phases[JobPhase(phase)])
                case families.JOBS_WAITING.name:
                    for reason, amount in (+of.reasons).items():
                        extra = labels({"reason": reason.value})
                        yield sample(family.name, f"{identity},{extra}", amount)
                case families.JOBS_LONGEST_WAIT.name:
                    longest = now - min(of.waiting.values(), default=now)
                    yield sample(family.name, identity, round(max(0.0, longest), 3))
                case families.CRON_JOBS.name:
                    yield sample(family.name, identity, len(of.cron_jobs))
                case _:
                    for of_one in tuple(of.cron_jobs.values())[:MAX_CRON_JOBS]:
                        yield from of_one(family.name)

    def _of(self, key: str) -> _Namespace:
        return self._namespaces.setdefault(_namespace(key), _Namespace())

    def _tidy(self, key: str) -> None:
        if self._of(key).is_empty:
            del self._namespaces[_namespace(key)]


@dataclass(slots=True)
class _Held:
    """Pods that held GPUs at the end of a runner, by uid."""

    at: float
    pods: set[str]


def _namespace(key: str) -> str:
    return key.partition("/")[0]
