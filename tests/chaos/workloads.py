"""Workloads: in each, clusters come and go one after another, and run programs while they are there."""

from __future__ import annotations

from gpudask.api import Json

import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from local.errors import LocalClusterError
from tests.chaos.audit import Attempt, was_hit
from tests.chaos.programs import PROGRAMS, STEPS, Program, connected
from tests.chaos.target import Target
from tests.e2e.manifests import QUICK_END, cluster, cpu, gpu

PROGRAM_SECONDS = 300.0  # under faults; without any they take some ten
_PROGRAMS_EACH = (2, 4)  # of a cluster
_AGAIN_SECONDS = 2.0  # before a program is run again
_STEPS_AT = "/chaos"
_MANY_FAILURES = 100  # a task's workers may die so often: faults follow each other more closely than in any life


@dataclass
class Workload:
    """A thread that goes on until `target.ending`, and then ends what it has begun within `quiet_seconds`.

    What it raises is the harness's own trouble.
    """

    target: Target
    number: int
    random: random.Random
    quiet_seconds: float
    tell: Callable[[str], None]
    attempts: list[Attempt] = field(default_factory=list)
    trouble: str = ""
    _rounds: int = 0
    _quiet_since: float = 0.0

    def start(self) -> threading.Thread:
        """Begin."""
        thread = threading.Thread(target=self._run, name=f"workload {self.number}", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            while not self.target.ending.is_set():
                self._round()
        except Exception as error:  # noqa: BLE001 - it is told at the end
            self.trouble = f"workload {self.number}: {type(error).__name__}: {error}"
            self.tell(self.trouble)

    def _round(self) -> None:
        self._rounds += 1
        name = f"workload{self.number}-{self._rounds}"
        if not self._insist(lambda: self.target.apply(_manifest(name))):
            return
        try:
            for _ in range(self.random.randint(*_PROGRAMS_EACH)):
                program, seed = self.random.choice(PROGRAMS), self.random.randrange(1000)
                while not self._is_over(self._attempt(name, program, seed)):
                    self.target.ending.wait(_AGAIN_SECONDS)
                if self.target.ending.is_set():
                    break
        finally:
            self._insist(lambda: self.target.do("delete", "gdc", name, "--wait=false", "--ignore-not-found"))

    def _is_over(self, attempt: Attempt) -> bool:
        """Whether it is not to be run again: it was not cut off by the end of its scheduler."""
        failed = attempt.answer is None and attempt.error
        return not (failed and was_hit(attempt.cluster, attempt.began, attempt.ended, self.target.hits))

    def _attempt(self, name: str, program: Program, seed: int) -> Attempt:
        began, expected = time.monotonic(), program.answer(seed)
        answer, error = self._within(name, program, seed)
        attempt = Attempt(name, program.name, began, time.monotonic(), expected, answer, error)
        self.attempts.append(attempt)
        if answer != expected:
            self.tell(f"attempt: {attempt}")
        if attempt.answer is None and not attempt.error:
            self.tell(f"{name} then:\n{self.target.describe(name)}")
        return attempt

    def _within(self, name: str, program: Program, seed: int) -> tuple[int | None, str]:
        """The answer, or what was raised; neither, where it came to no end in its time.

        After that time no new fault begins for as long as quiet is at the end: it may only have been slow, since what
        it needs was broken again and again. In a thread of its own: nothing that hangs in a client shall keep the
        workload.
        """
        seen: list[tuple[int | None, str]] = []
        overdue = time.monotonic() + PROGRAM_SECONDS
        longest = PROGRAM_SECONDS + self.quiet_seconds
        latest = time.monotonic() + longest

        def work() -> None:
            try:
                with connected(self.target.api, self.target.namespace, name, seconds=longest) as client:
                    seen.append((program.run(client, seed, longest), ""))
            except BaseException as error:  # noqa: BLE001 - whatever a program meets is looked at
                if not isinstance(error, TimeoutError) or time.monotonic() < latest:
                    seen.append((None, f"{type(error).__name__}: {error}"[:250].replace("\n", " ")))

        thread = threading.Thread(target=work, name=f"{program.name} on {name}", daemon=True)
        thread.start()
        with ExitStack() as calm:
            while thread.is_alive() and not seen and time.monotonic() < latest:
                thread.join(0.5)
                if self.target.ending.is_set():
                    self._quiet_since = self._quiet_since or time.monotonic()
                    latest = self._quiet_since + self.quiet_seconds
                elif time.monotonic() > overdue:
                    overdue = float("inf")
                    self.tell(
                        f"{program.name} on {name} has had its {PROGRAM_SECONDS:.0f} s: no new fault until it ends"
                    )
                    calm.enter_context(self.target.calm())
        return seen[0] if seen else (None, "")

    def _insist(self, action: Callable[[], object]) -> bool:
        """Do it, once the API server lets us; whether that was so before the run's end came and went."""
        deadline = float("inf")
        while time.monotonic() < deadline:
            try:
                action()
            except (AssertionError, LocalClusterError, subprocess.SubprocessError):
                time.sleep(1)
            else:
                return True
            if self.target.ending.is_set() and deadline == float("inf"):
                deadline = time.monotonic() + self.quiet_seconds
        return False


def _manifest(name: str) -> Json:
    """A small mixed cluster that autoscales both ways, GPUs from zero."""
    quick = {"targetDuration": "5s", "idleTimeout": "5s"}
    pools = (
        cpu(autoscale={"min": 1, "max": 2, **quick}),
        gpu(autoscale={"min": 0, "max": 2, **quick}),
    )
    made = cluster(name, *pools, config={"distributed": {"scheduler": {"allowed-failures": _MANY_FAILURES}}})
    mounted = {"name": "steps", "mountPath": _STEPS_AT, "readOnly": True}
    made["spec"] |= {
        "imagePullPolicy": "IfNotPresent",  # a missing one is asked for, and not found
        "env": [{"name": "PYTHONPATH", "value": _STEPS_AT}],
        "template": {
            "spec": QUICK_END["spec"]
            | {
                "volumes": [{"name": "steps", "hostPath": {"path": str(STEPS)}}],
                "containers": [{"name": "dask", "volumeMounts": [mounted]}],
            }
        },
    }
    return made
