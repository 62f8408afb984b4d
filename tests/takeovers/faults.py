"""The faults of a history: each comes at a random time, hits a random operator or all, and passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.takeovers.api_server import ApiServer
from tests.takeovers.operators import Operator
from tests.takeovers.timeline import Timeline

_FIRST_SECONDS, _BETWEEN_SECONDS = 12.0, (4.0, 16.0)
_KILLED_SECONDS, _RESTART_SECONDS = (6.0, 10.0), (1.0, 3.0)  # until it begins anew: after a kill; orderly
_FROZEN_SECONDS, _HUNG_SECONDS = (5.0, 25.0), (3.0, 20.0)
_BEHIND_SECONDS, _LOST_SECONDS, _REFUSED_SECONDS = (5.0, 15.0), (5.0, 15.0), (5.0, 20.0)
_CUT_SECONDS = (0.2, 2.0, 10.0, 42.0)
_EXPIRED_SECONDS = (0.2, 2.0, 8.0)  # until it can list
# How far somebody sets the API server's clock, how soon after it was last right, and for how long.
_SET_SECONDS, _RIGHT_SECONDS, _WRONG_SECONDS = (60.0, 3600.0), (5.0, 30.0), (5.0, 30.0)
_LISTS = 0.5  # share of watches that list anew, where they need not


class Faults:
    """What goes wrong, one after another."""

    def __init__(self, timeline: Timeline, server: ApiServer, operators: Sequence[Operator]) -> None:
        self._timeline = timeline
        self._server = server
        self._operators = operators
        self._next_at = _FIRST_SECONDS
        self._kinds: tuple[Callable[[Operator], None], ...] = (
            self._kill,
            self._kill_all,
            self._restart,
            self._restart_all,
            self._freeze,
            self._change_leader,
            self._hang,
            self._fall_behind,
            self._cut,
            self._expire,
            self._lose_answers,
            self._refuse,
            self._annotate,
            self._spare,
        )

    def set_clock(self, until: float) -> None:
        """Have somebody set the API server's clock, and set it right again, over and over until a time."""
        chance = Random(self._timeline.chance.random())  # noqa: S311 - no secret
        at = 0.0
        while True:
            at += chance.uniform(*_RIGHT_SECONDS)
            back = at + chance.uniform(*_WRONG_SECONDS)
            if back > until:
                return
            self._set_at(at, chance.choice((-1, 1)) * chance.uniform(*_SET_SECONDS))
            self._set_at(back, 0.0)
            at = back

    def strike(self) -> None:
        """Do one, where it is time."""
        chance, now = self._timeline.chance, self._timeline.now
        if now < self._next_at:
            return
        self._next_at = now + chance.uniform(*_BETWEEN_SECONDS)
        fault = chance.choice(self._kinds)
        alive = [operator for operator in self._operators if operator.is_alive]
        fault(chance.choice(alive or self._operators[:1]))

    def _kill(self, operator: Operator) -> None:
        if operator.is_alive:
            self._end(operator, self._seconds(_KILLED_SECONDS, f"{operator.name} is killed"))

    def _kill_all(self, _: Operator) -> None:
        seconds = self._seconds(_KILLED_SECONDS, "all operators are killed")
        for operator in self._operators:
            self._end(operator, seconds)

    def _restart(self, operator: Operator) -> None:
        if operator.is_alive:
            self._note(f"{operator.name} is deleted, and ends in order")
            if operator.leads:
                operator.stand_by(release=True)
            operator.kill()
            self._begin_in(operator, self._timeline.chance.uniform(*_RESTART_SECONDS))

    def _restart_all(self, _: Operator) -> None:
        for operator in self._operators:
            self._restart(operator)

    def _freeze(self, operator: Operator) -> None:
        operator.frozen_until = self._until(_FROZEN_SECONDS, f"{operator.name} is frozen")

    def _change_leader(self, _: Operator) -> None:
        """Somebody gives the lease to the other one, where that runs."""
        for operator in self._operators:
            if operator.is_alive and operator.leads and self._timeline.now >= operator.frozen_until:
                self._note("the leader changes")
                operator.stand_by(release=True)
                others = [each.name for each in self._operators if each is not operator and each.is_alive]
                self._server.lease.holder = others[0] if others else ""
                self._server.lease.renewed = self._timeline.now

    def _hang(self, _: Operator) -> None:
        self._server.hangs_until = self._until(_HUNG_SECONDS, "the API server hangs")

    def _fall_behind(self, _: Operator) -> None:
        self._server.behind_until = self._until(_BEHIND_SECONDS, "all watches fall behind")

    def _cut(self, operator: Operator) -> None:
        """Cut the watches of an operator, or one of them; that of the pods may have to list then."""
        chance = self._timeline.chance
        seconds, which = chance.choice(_CUT_SECONDS), chance.choice(("pods", "cluster", "both"))
        self._note(f"{operator.name}'s watch is cut for {seconds:.1f} s: {which}")
        until = self._timeline.now + seconds
        if which != "cluster":
            operator.pods.cut_until = until
            if chance.random() >= _LISTS:
                operator.pods.expire()
        if which != "pods":
            operator.cluster.cut_until = until

    def _expire(self, operator: Operator) -> None:
        """Have an operator's watches list anew."""
        chance = self._timeline.chance
        operator.pods.expire()
        if chance.random() < _LISTS:
            operator.cluster.expire()
        seconds = chance.choice(_EXPIRED_SECONDS)
        self._note(f"{operator.name}'s watch expires, and lists in {seconds:.1f} s")
        operator.pods.cut_until = self._timeline.now + seconds

    def _lose_answers(self, _: Operator) -> None:
        self._server.loses_until = self._until(_LOST_SECONDS, "answers to writes are lost")

    def _refuse(self, _: Operator) -> None:
        self._server.refuses_until = self._until(_REFUSED_SECONDS, "requests are refused")

    def _annotate(self, _: Operator) -> None:
        self._note("somebody edits the cluster's annotations")
        self._server.annotate()

    def _spare(self, _: Operator) -> None:
        """Let nothing go wrong this time: some faults that come later find the operators at rest."""

    def _end(self, operator: Operator, seconds: float) -> None:
        if operator.is_alive:
            operator.kill()
        self._begin_in(operator, seconds)

    def _begin_in(self, operator: Operator, seconds: float) -> None:
        self._timeline.later(self._timeline.now + seconds, operator.revive)

    def _set_at(self, at: float, seconds: float) -> None:
        def set_now() -> None:
            self._note(f"the API server's clock is {seconds:+.0f} s off")
            self._timeline.server_set = seconds

        self._timeline.later(at, set_now)

    def _until(self, between: tuple[float, float], what: str) -> float:
        return self._timeline.now + self._seconds(between, what)

    def _seconds(self, between: tuple[float, float], what: str) -> float:
        seconds = self._timeline.chance.uniform(*between)
        self._note(f"{what} for {seconds:.1f} s")
        return seconds

    def _note(self, text: str) -> None:
        self._timeline.note(f"FAULT: {text}")
