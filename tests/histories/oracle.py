"""What must hold, while a history runs and when it is over. Each breach is a `Failure` of one of `KINDS`.

- lost: a wanted result is gone, wrong, or an error that Dask would not give
- hung: a wanted result does not come, although workers run that could compute it
- repeated: a task ran twice although nothing that it needed to had died
- miscounts: the preload's figures differ from a walk over the scheduler's tasks
- leaks: something keeps an entry of a task or a worker that is gone
- removed: a worker's process ended that nobody let end
- closed: a worker that nobody wants to leave takes no tasks, or offers what it should not
- fence: a plain task ran where plain tasks are kept off
- errors: an exception was logged, or an answer failed
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from distributed import Status

from . import tasks
from .cluster import POOLS, Pod
from .loop import CLOCK
from .moves import Want, World

KINDS = ("lost", "hung", "repeated", "miscounts", "leaks", "removed", "closed", "fence", "errors")
LIVE = ("Pinned._by_address", "Pinned._bindings", "Binding.names")  # that keep the text of live tasks
ACTIVE = {"waiting": "waiting", "queued": "unrunnable", "no-worker": "unrunnable", "processing": "processing"}


@dataclass(frozen=True)
class Failure:
    """One breach. `sign` tells one fault from another: words without names and numbers."""

    kind: str
    words: str

    @property
    def sign(self) -> str:
        return f"{self.kind}: " + re.sub(r"[\w.-]*\d[\w.:/-]*", "#", self.words)[:160]


class Logs(logging.Handler):
    """Errors that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            last = record.exc_info[2]
            while last is not None and last.tb_next is not None:
                last = last.tb_next
            at = f" at {last.tb_frame.f_code.co_name}" if last else ""
            text += f" [{type(record.exc_info[1]).__name__}: {record.exc_info[1]}{at}]"
        self.lines.append(f"{record.name}: {text}")


LOGS = Logs()
for _name in ("distributed", "gpudask"):
    logging.getLogger(_name).handlers[:] = [LOGS]
    logging.getLogger(_name).propagate = False

# What distributed logs as an error when processes die, connections break and tasks fail: the history did that.
_EXPECTED_LOGS = (
    r"Compute Failed",
    r"ExpectedError",
    r"name taken",  # a container came back before the scheduler noticed that its predecessor was gone
    r"Timed out trying to connect|CommClosedError|closed",
    r"Failed to communicate with scheduler during heartbeat",
    r"Couldn't gather|Could not find data|broadcast to .* failed",
    r"did not do (set_offer|begin_waiting)|did not say what its results need",
    r"caused the cluster to lose scattered data",
    r"Exception while handling op scatter",  # a worker that it chose is gone, or there is none
    r"handling op set_resources \[KeyError",  # the worker is gone, and has not heard of it
    r"status transition: Status.closing -> ",  # it closes, and a word that was on its way comes too late
    # A shuffle began anew, or ended, while a participant still spoke of its last run
    r"P2PConsistencyError|handling op shuffle_barrier",
    # A client reconnected before its old stream had ended, whose end removes it, and its new stream's once more
    r"handling op register-client \[KeyError",
    r"Worker plugin shuffle failed to teardown",  # a worker that closes twice, or before its plugins are there
    r"expiring Timeout",  # distributed's pool of connections closes while one of its attempts is timing out
)
EXPECTED_LOGS = re.compile("|".join(_EXPECTED_LOGS))


class Oracle:
    """Judges one history."""

    def __init__(self, world: World, *, has_preload: bool) -> None:
        self._world = world
        self._cluster = world.cluster
        self._has_preload = has_preload
        self.failures: dict[str, Failure] = {}  # by sign
        self._taking_in_since: float | None = None
        self._seen = (-1, -1)  # messages and transitions at the last look
        LOGS.lines.clear()
        world.on_reap = self.on_reap

    def fail(self, kind: str, words: str) -> None:
        failure = Failure(kind, words)
        self.failures.setdefault(failure.sign, failure)

    # While it runs

    def look(self) -> None:
        """Compare what the preload says with what is there, if anything has happened since the last time."""
        if not self._has_preload or self._cluster.preload is None:
            return
        happened = self._cluster.network.events, self._cluster.scheduler.transition_counter
        if happened == self._seen and not self._cluster.taking_in:
            return
        self._seen = happened
        try:
            answer = self._cluster.preload.answer()
        except Exception as error:  # noqa: BLE001 (whatever it raises, the operator gets no answer)
            self.fail("errors", f"the demand route fails: {type(error).__name__}: {error}")
            return
        self._compare_demand(answer)
        self._compare_workers(answer)
        self._compare_idle(answer)

    def _compare_demand(self, answer: dict[str, Any]) -> None:
        if self._world.is_malformed:
            return
        walked: dict[tuple[Any, ...], Counter[str]] = {}
        for ts in self._cluster.scheduler.tasks.values():
            if ts.state in ACTIVE:
                requirement = tuple(sorted((ts.resource_restrictions or {}).items()))
                walked.setdefault(requirement, Counter())[ACTIVE[ts.state]] += 1
        told = {
            tuple(sorted(entry["resources"].items())): Counter(
                {name: entry[name] for name in ("waiting", "unrunnable", "processing") if entry[name]}
            )
            for entry in answer["demand"]
        }
        if told != walked:
            self.fail("miscounts", f"demand: told {told}, walked {walked}")
        if answer["tasks"] != len(self._cluster.scheduler.tasks):
            self.fail("miscounts", f"tasks: told {answer['tasks']}")

    def _compare_workers(self, answer: dict[str, Any]) -> None:
        workers = self._cluster.scheduler.workers
        rows = {row["address"]: row for row in answer["workers"]}
        if rows.keys() != workers.keys():
            self.fail("miscounts", f"workers: told {sorted(rows)}, there are {sorted(workers)}")
            return
        for address, ws in workers.items():
            only = sum(1 for ts in ws.has_what if len(ts.who_has) == 1)
            if (rows[address]["processing"], rows[address]["held_keys"]) != (len(ws.processing), only):
                self.fail("miscounts", f"row of {ws.name}: {rows[address]}, walked {len(ws.processing)}, {only}")

    def _compare_idle(self, answer: dict[str, Any]) -> None:
        """See that the cluster is not called idle while the scheduler takes in a graph."""
        if not self._cluster.taking_in:
            self._taking_in_since = None
            return
        if self._taking_in_since is None:
            self._taking_in_since = CLOCK.now
        took = CLOCK.now - self._taking_in_since
        idle = answer["idle_seconds"]
        if took > 0.5 and idle is not None and idle > 0.5:
            self.fail("miscounts", "idle: seconds grow while a graph is taken in")

    def on_reap(self, pod: Pod) -> None:
        """Look at a pod that is drained and is about to be deleted: what only it could run would never run."""
        ws = self._cluster.state(pod)
        if ws is None or self._world.is_malformed:
            return
        for want in self._world.wanted():
            ts = self._cluster.scheduler.tasks.get(want.key)
            if ts is None or ts.state not in ACTIVE or not ts.worker_restrictions or ts.loose_restrictions:
                continue
            needs = ts.resource_restrictions or {}
            could = all(ws.resources.get(name, -1) >= n for name, n in needs.items())
            if could and ts.worker_restrictions == {ws.address}:
                self.fail("lost", "a worker is drained although a task is pinned to it alone")

    # When it is over

    def pending(self) -> list[Want]:
        """Return what is wanted, could be computed, and is not."""
        scheduler = self._cluster.scheduler
        found: list[Want] = []
        if self._world.is_malformed:
            return found
        for want in self._world.wants.values():
            if want.only_once_run:
                ran = any(run.ended for run in tasks.Current.record.runs.get(want.key, ()))
                ts = scheduler.tasks.get(want.key)
                if not ran and ts is not None and ts.state != "erred" and self._is_runnable(ts):
                    found.append(want)
                continue
            if want.is_let_go or want.future is None or want.future.done() or want.is_actor:
                continue
            ts = scheduler.tasks.get(want.key)
            if ts is None or self._is_runnable(ts):
                found.append(want)
        return found

    def _is_runnable(self, ts: Any, seen: frozenset[Any] = frozenset()) -> bool:
        """Return whether a worker that runs could run a task, and all that it waits for."""
        if ts.state in ("memory", "processing", "queued", "released", "erred"):
            return True
        needs = ts.resource_restrictions or {}
        if ts.state == "no-worker":
            named = ts.worker_restrictions if not ts.loose_restrictions else None
            return any(
                (not named or ws.address in named) and all(ws.resources.get(r, -1) >= n for r, n in needs.items())
                for ws in self._cluster.scheduler.running
            )
        return all(self._is_runnable(other, seen | {ts}) for other in ts.waiting_on or () if other not in seen)

    def describe(self, want: Want) -> str:
        """Say where a task that does not come is stuck."""
        ts = self._cluster.scheduler.tasks.get(want.key)
        if ts is None:
            return "the scheduler does not know it"
        while ts.state == "waiting" and ts.waiting_on:
            ts = min(ts.waiting_on, key=lambda other: str(other.key))
        words = f"{ts.state}"
        if ts.processing_on is not None:
            pod = next((p for p in self._cluster.pods.values() if self._cluster.state(p) is ts.processing_on), None)
            there = pod.worker.state.tasks.get(ts.key) if pod is not None and pod.worker is not None else None
            words += f" on a {pod.pool if pod else 'gone'} worker, there {there.state if there else 'unknown'}"
        restrictions = [
            *(["resources"] if ts.resource_restrictions else []),
            *(["loose" if ts.loose_restrictions else "pinned"] if ts.worker_restrictions else []),
        ]
        return f"{words} ({', '.join(restrictions) or 'plain'})"

    def judge_hung(self, wants: list[Want]) -> None:
        """Note what does not come."""
        for want in wants:
            if self._world.is_malformed:
                continue
            self.fail("hung", self.describe(want))

    def judge_results(self, results: dict[str, Any]) -> None:
        """Compare what clients got with what they should get: key -> (status, value or error)."""
        for key, (status, value) in results.items():
            want = self._world.wants[key]
            if self._world.is_malformed or want.may_fail or want.is_actor:
                continue
            if want.is_shuffle and status != "finished" and self._cluster.deaths:
                continue  # a shuffle whose participants die again and again gives up
            if status == "finished" and not want.raises:
                if value != want.expected:
                    self.fail("lost", f"wrong result {value!r} for {want.expected!r}")
            elif status == "finished" and self._runs_failed(want):
                continue  # it failed, was lost, and did not fail when it was computed again
            elif (status == "error" and (isinstance(value, tasks.ExpectedError) and want.raises)) or (
                status == "error" and type(value).__name__ == "KilledWorker" and len(self._cluster.deaths) > 3
            ):
                continue
            elif status == "lost" and not self._could_run(key):
                continue  # it was pinned to a worker that is gone, with the result
            elif self._was_scattered_data_killed(want, status):
                continue
            else:
                what = "scattered " if want.is_scattered else ""
                self.fail("lost", f"{what}{status}: {type(value).__name__} {str(value)[:80]}")

    def _could_run(self, key: str) -> bool:
        ts = self._cluster.scheduler.tasks.get(key)
        return ts is None or self._is_runnable(ts)

    def _runs_failed(self, want: Want) -> bool:
        return any(run.failed for run in tasks.Current.record.runs.get(want.key, ()))

    def _was_scattered_data_killed(self, want: Want, status: str) -> bool:
        """Return whether a process died that may have had scattered data which a task needs: nobody computes it."""
        killed = any(host not in self._cluster.released for _, host in self.kills())
        if status not in ("cancelled", "lost", "error") or not killed:
            return False
        return want.is_scattered or any(w.is_scattered for w in self._world.wants.values())

    def kills(self) -> list[tuple[float, Any]]:
        """Return the processes that died with what they held: killed ones, not those that were let go in peace."""
        return [(at, host) for at, host in self._cluster.deaths if host not in self._cluster.reaped]

    def judge_runs(self) -> None:
        """See that nothing ran twice that did not have to."""
        restarted = bool(self._cluster.restarted) or self._world.is_malformed
        kills = self.kills()
        for key, runs in tasks.Current.record.runs.items():
            want = self._world.wants.get(key)
            for one, other in itertools.pairwise(runs):
                if one.failed or restarted or (want is not None and want.may_fail):
                    continue
                if any(one.started <= at <= other.started + 1e-3 for at, _ in kills) or one.host.is_dead:
                    continue
                if want is None and "." not in key:
                    continue
                words = "at once with its first run" if one.ended is None or one.ended > other.started else "again"
                where = "on the same worker" if one.host is other.host else "elsewhere"
                self.fail("repeated", f"ran {words} {where}")

    def judge_fence(self) -> None:
        """See that plain tasks ran where they may."""
        if not self._has_preload:
            return
        fenced = {"gpu", "himem"} - self._world.changed_accepts
        for key, runs in tasks.Current.record.runs.items():
            want = self._world.wants.get(key)
            if want is None or want.spec.get("resources"):
                continue
            for run in runs:
                pod = run.host.name.partition("#")[0]
                if pod.partition("-")[0] in fenced and pod not in want.spec["pods"]:
                    named = ("loose" if want.spec["loose"] else "pinned") if want.spec["pods"] else "unbound"
                    self.fail("fence", f"a plain task ({named}) ran on a {pod.partition('-')[0]} worker")

    def judge_workers(self) -> None:
        """See that whoever should work does, and offers its own."""
        if self._world.is_malformed:
            return
        for words in self._cluster.unexplained:
            self.fail("removed", words)
        for pod in self._cluster.living():
            ws, worker = self._cluster.state(pod), pod.worker
            if ws is None or worker is None or pod.is_ending or pod.name in self._cluster.operator.retiring:
                continue
            if ws.status != Status.running or worker.status != Status.running:
                announced = " (announced before)" if pod.name in self._world.ending else ""
                self.fail("closed", f"a worker is {ws.status.name}, it says {worker.status.name}{announced}")
            own = {name: float(n) for name, n in POOLS[pod.pool].items()}
            offered = {name: n for name, n in ws.resources.items() if n}
            there = {name: n for name, n in worker.state.total_resources.items() if n}
            if self._has_preload and (offered != own or there != own):
                self.fail("closed", f"a {pod.pool} worker offers {there}, the scheduler says {offered}")

    def judge_logs(self) -> None:
        """See that nothing was logged as an error but what the history explains."""
        if self._world.is_malformed:
            return
        for line in LOGS.lines:
            if not EXPECTED_LOGS.search(line):
                self.fail("errors", line[:300])

    def kept(self) -> set[Any]:
        """Return the tasks that the scheduler knows although nobody wants them."""
        return set(self._cluster.scheduler.tasks.values()) - self._forgotten()

    def judge_leaks(self) -> None:
        """See that nothing is kept once all is let go."""
        scheduler = self._cluster.scheduler
        if self._world.is_malformed or any("handling op register-client" in line for line in LOGS.lines):
            return  # a client that was removed so goes on wanting what nobody lets go for it
        kept = self.kept()
        if kept:
            states = Counter(ts.state for ts in kept)
            self.fail("leaks", f"the scheduler keeps tasks: {dict(states)}")
            return
        stealing = scheduler.extensions.get("stealing")
        if stealing is not None and stealing.in_flight:
            self.fail("leaks", "stealing keeps requests in flight")
        if not self._has_preload:
            return
        workers = set(scheduler.workers.values())
        names = {ws.name for ws in workers} | {pod.dask_name for pod in self._cluster.living()}
        for path, thing in _entries(self._cluster.preload):
            kind = type(thing).__name__
            if kind == "TaskState" and scheduler.tasks.get(thing.key) is not thing:
                self.fail("leaks", f"{path} keeps a task")
            elif kind == "WorkerState" and thing not in workers:
                self.fail("leaks", f"{path} keeps a worker that is gone")
            elif isinstance(thing, str) and path not in LIVE:
                if thing.startswith("sim://") and thing not in scheduler.workers:
                    self.fail("leaks", f"{path} keeps the address of a worker that is gone")
                elif thing.startswith(("gpudask-recall", "steal-")):
                    self.fail("leaks", f"{path} keeps a question that nobody waits for")
                elif thing.startswith("demo-") and thing not in names:
                    self.fail("leaks", f"{path} keeps a pod that is gone")

    def _forgotten(self) -> set[Any]:
        """Return the tasks that were to be forgotten, with all that they need.

        One that cannot run stays, and so does one that ran before the scheduler heard that it is to be forgotten.
        """
        tasks_ = self._cluster.scheduler.tasks
        found = {tasks_[w.key] for w in self._world.wants.values() if w.only_once_run and w.key in tasks_}
        if self._world.cut_off:  # what a client scattered while it was cut off is kept for it, who never comes
            found |= {ts for ts in tasks_.values() if ts.run_spec is None}
        stack = list(found)
        while stack:
            new = set(stack.pop().dependencies) - found
            found |= new
            stack += new
        return found


def _entries(preload: Any) -> list[tuple[str, Any]]:
    """Return what the containers of the preload's objects hold, with where: tasks, workers, texts."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [("Preload", preload)]
    while stack:
        path, thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kind = type(thing)
        if kind.__name__ in ("TaskState", "WorkerState") or isinstance(thing, str):
            found.append((path, thing))
            seen.discard(id(thing))
        elif isinstance(thing, dict):
            for key, value in list(thing.items()):
                stack += [(path, key), (path, value)]
        elif isinstance(thing, (list, tuple, set, frozenset)):
            stack += [(path, item) for item in thing]
        elif kind.__module__.startswith("gpudask.preload"):
            names = list(getattr(thing, "__dict__", {})) or list(getattr(kind, "__slots__", ()))
            for name in names:
                if name not in ("scheduler", "_scheduler", "_loop", "_stealing", "_tasks"):
                    value = getattr(thing, name, None)
                    stack.append((f"{kind.__name__}.{name}", value))
    return found
