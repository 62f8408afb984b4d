"""A run: the faults of a plan, a thread for each, beside workloads and an observer; then quiet, and the audit."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import median

from local.errors import LocalClusterError
from tests.chaos import audit, processes
from tests.chaos.audit import Attempt, Verdict
from tests.chaos.faults import FAULTS
from tests.chaos.workloads import Workload
from tests.chaos.lifetimes import compare, is_unseen, recorded, unheard
from tests.chaos.observer import Observer, PodWatch
from tests.chaos.plan import BEHIND, LOSES_STATE, OF_API_SERVER, OF_OPERATORS, Planned, plan
from tests.chaos.target import NoVictimError, Target
from tests.e2e.platform import Platform

Tell = Callable[[str], None]
_QUIET_SECONDS = 180.0  # for what is to come to its end once no fault acts any more
_KEPT_SECONDS = 2.0  # between two looks at whether the control plane's parts run
_CALM_STEP_SECONDS = 0.5
_BEGINNING_SECONDS = 5.0  # for which a fault looks for its victim


@dataclass(frozen=True)
class Settings:
    """`only`: the kinds of faults; empty: all."""

    minutes: float
    seed: int
    lanes: int = 2
    only: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """`line`: the last. `told`: what stands before it. `log`: what the operators logged. `findings`: what is wrong.

    `faults`: that were inflicted; `programs`: that gave an answer.
    """

    line: str
    faults: int
    programs: int
    told: tuple[str, ...]
    log: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass
class Faults:
    """The faults that are inflicted: `done` by kind, and what found no victim or could not begin, with why.

    `behind`: from when until when all watches were held back, `away`: the API server did not answer, `unattended`:
    there was perhaps no operator; in seconds since the epoch.
    """

    target: Target
    tell: Tell
    done: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    behind: list[tuple[float, float]] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    unattended: list[tuple[float, float]] = field(default_factory=list)
    _busy: dict[str, threading.Lock] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)

    def inflict(self, planned: tuple[Planned, ...], began: float, seconds: float) -> None:
        """All of the plan, as it says; returns at the end of the run."""
        for each in planned:
            self._busy.setdefault(each.kind.group, threading.Lock())
            if self.target.ending.wait(max(0.0, began + each.at - time.monotonic())):
                return
            while self.target.is_calm:  # what is planned comes so much later
                if self.target.ending.wait(_CALM_STEP_SECONDS):
                    return
                began += _CALM_STEP_SECONDS
            thread = threading.Thread(target=self._inflict, args=(each,), name=each.kind.name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self.target.ending.wait(max(0.0, began + seconds - time.monotonic()))

    def join(self, seconds: float) -> list[str]:
        """Wait until all are undone; which are not."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _inflict(self, each: Planned) -> None:
        with self._busy[each.kind.group]:  # one before may have taken longer than planned
            with ExitStack() as undone:
                began = time.time()
                if victim := self._begin(each, undone):
                    self.done[each.kind.name] += 1
                    lasts = f", {each.seconds:.0f} s" if each.seconds else ""
                    self.tell(f"{time.strftime('%M:%S')} fault: {each.kind.name}: {victim}{lasts}")
                    self.target.ending.wait(each.seconds)
            spans = {BEHIND: self.behind}
            spans |= dict.fromkeys(OF_API_SERVER, self.away) | dict.fromkeys(OF_OPERATORS, self.unattended)
            if victim and each.kind.name in spans:
                spans[each.kind.name].append((began, time.time()))

    def _begin(self, each: Planned, undone: ExitStack) -> str:
        """Begin it, once it finds a victim; which. Empty: it found none, or the API server is away."""
        deadline = time.monotonic() + _BEGINNING_SECONDS
        while True:
            try:
                return undone.enter_context(FAULTS[each.kind.name](self.target, each.pick))
            except (NoVictimError, AssertionError, LocalClusterError, OSError, subprocess.SubprocessError) as error:
                if time.monotonic() > deadline or self.target.ending.is_set():
                    self.missed.append(f"{each.kind.name}: {str(error)[:200]}")
                    return ""
                self.target.ending.wait(0.5)


def run(settings: Settings, tell: Tell, platform: Platform | None = None) -> Outcome:
    """Do it all, on a platform that is there or is brought up. Nothing stays: no fault, no cluster, no rule."""
    planned = plan(settings.seed, 60 * settings.minutes, only=settings.only)
    with Target.set_up(settings.seed, platform) as target:
        faults, observer, pod_watch = Faults(target, tell), Observer(target), PodWatch(target)
        workloads = [
            Workload(target, number, random.Random(f"{settings.seed} {number}"), _QUIET_SECONDS, tell)  # noqa: S311
            for number in range(settings.lanes)
        ]
        watching, began = (observer.start(), pod_watch.start()), time.monotonic()
        kept = threading.Event()
        threading.Thread(target=_keep, args=(target, tell, kept), name="keeper", daemon=True).start()
        working = [workload.start() for workload in workloads]
        try:
            faults.inflict(planned, began, 60 * settings.minutes)
        except KeyboardInterrupt:
            tell("interrupted: the run ends now")
        minutes = (time.monotonic() - began) / 60
        target.ending.set()
        tell("no more faults: what goes on comes to its end")
        left = faults.join(_QUIET_SECONDS)
        for thread in working:
            thread.join(_QUIET_SECONDS + 60)
        tell("the workloads have ended")
        verdict = _settled(target, tell)
        kept.set()
        observer.stop()
        pod_watch.stop()
        for thread in watching:
            thread.join(30)
        attempts = [attempt for workload in workloads for attempt in workload.attempts]
        for attempt in attempts:
            verdict += audit.of_attempt(attempt, target.hits)
        verdict += audit.of_schedulers(observer.schedulers, target.hits)
        verdict += audit.of_gpu_seconds(observer.pools) + audit.of_retries(
            observer.statuses, [*faults.away, *faults.unattended]
        )
        verdict += audit.of_log(observer.lines)
        records = target.records()
        behind = unheard(faults.behind, faults.away)
        ledgers = compare(pod_watch.lifetimes, observer.pools, recorded(records), behind=behind)
        verdict += ledgers.verdict
        troubles = [*target.troubles, *(each.trouble for each in workloads if each.trouble)]
        troubles += [f"{name} was not undone" for name in left]
    findings = _findings(verdict, troubles)
    told = _told(faults, verdict, observer) + _longest(attempts)
    told += [f"records of clusters whose end no operator saw: {sum(map(is_unseen, records))} of {len(records)}"]
    told += [f"ledger, within what is allowed: {text}" for text in ledgers.told] + findings
    answered = sum(attempt.answer is not None for attempt in attempts)
    count = faults.done.total()
    line = audit.report(round(minutes, 1), count, answered, verdict, ledgers.gap)
    return Outcome(line, count, answered, tuple(told), tuple(observer.lines), tuple(findings))


def _keep(target: Target, tell: Tell, stopped: threading.Event) -> None:
    """Until `stopped`, do for the parts of the control plane what a kubelet does."""
    while not stopped.wait(_KEPT_SECONDS):
        try:
            ended = processes.restart_ended(target.platform.cluster)
        except (LocalClusterError, OSError) as error:  # without that part the rest of the run shows nothing
            target.troubles.append(f"a part of the control plane that ended itself was not started again: {error}")
            return
        for name in ended:
            tell(f"{name} ended itself, and was started again")


def _settled(target: Target, tell: Tell) -> Verdict:
    """Wait until everything of the run has gone, and both operators are ready; what has not, and is not."""
    deadline = time.monotonic() + _QUIET_SECONDS
    pods, clusters, operators = ["?"], ["?"], 0
    while (pods or clusters or operators < 2) and time.monotonic() < deadline:
        time.sleep(1)
        try:
            clusters = [each["metadata"]["name"] for each in target.clusters()]
            pods = [f"{each['metadata']['name']} {each['status'].get('phase')}" for each in target.pods()]
            operators = sum(map(_is_ready, target.operators()))
        except LocalClusterError as error:
            tell(f"the API server: {error}")
    stuck = [f"cluster {name} is still there" for name in clusters]
    stuck += [f"{operators} operators are ready, 2 are wanted"] if operators < 2 else []
    return Verdict(stuck=tuple(stuck), leaked=() if clusters else tuple(pods))


def _is_ready(pod: dict[str, object]) -> bool:
    status = pod["status"]
    assert isinstance(status, dict)
    return all(each["ready"] for each in status.get("containerStatuses", ()))


def _findings(verdict: Verdict, troubles: list[str]) -> list[str]:
    kinds = ("wrong", "lost", "stuck", "leaked")
    found = [f"{kind.upper()} {text}" for kind in kinds for text in getattr(verdict, kind)]
    return found + [f"HARNESS {text}" for text in troubles]


def _told(faults: Faults, verdict: Verdict, observer: Observer) -> list[str]:
    lines = [f"{count:4d} x {name}" for name, count in faults.done.most_common()]
    lines += [f"no victim: {text}" for text in faults.missed]
    lines += [f"run again, its scheduler was ended: {text}" for text in verdict.again]
    apart = sum(faults.done[name] for name in LOSES_STATE)
    counts = faults.target.proxy.counts
    lines.append(
        f"apart: schedulers ended={apart} programs run again={len(verdict.again)}; looks={observer.looks} "
        f"requests={counts.requests} refused={counts.refused} unanswered={counts.lost} expired={counts.expired}"
    )
    return lines


def _longest(attempts: list[Attempt]) -> list[str]:
    """How long programs took, and which took longest."""
    answered = [attempt for attempt in attempts if attempt.answer is not None]
    took = sorted(((each.ended - each.began, each) for each in answered), key=itemgetter(0))
    if not took:
        return []
    middle, (seconds, longest) = median(each for each, _ in took), took[-1]
    return [
        f"programs took {middle:.0f} s in the middle, {seconds:.0f} s at most: {longest.program}, {longest.cluster}"
    ]
