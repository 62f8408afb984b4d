"""Copies on their way from one worker to others: what was asked of whom, what failed, when it is tried again.

Bookkeeping alone: `ask` sends a request, `step` is called at each look of the drain, `failed` when a recipient says so.

A worker fetches in batches, and one value that cannot be sent or read fails everything in its batch. So what fails
together is asked again in halves, until what is at fault stands alone. That is tried again ever slower and never given
up: the fault may lie in the recipient. Nothing here takes a request back, because a copy that arrives at that moment
could be lost with it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

FAILURES = 3  # of a value that was asked for alone: then people are told
TOLD_SECONDS = 60.0  # people are told after this time too, alone or not
FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS = 1.0, 300.0
PATIENCE_SECONDS = 30.0  # without any arrival, beside the time that the largest value takes
SLOW_BYTES_PER_SECOND = 20e6
NOT_FOUND = 2  # times, a second apart, that a recipient says so of what it was asked for
SPURIOUS = 3  # failures in a row that say nothing of the values, before they are taken seriously
# After a failed transfer the sender still waits for its receipt, and takes the next request on that connection for it.
OUT_OF_STEP = "AssertionError: {'op': 'get_data'"


@dataclass
class _Flight:
    """One request to one recipient. `is_trial`: of values that failed before, with no other request beside it."""

    address: str
    pending: dict[Any, int]  # key -> bytes
    moved_at: float
    is_trial: bool = False
    not_found: Counter[Any] = field(default_factory=Counter)
    failures: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = len(self.pending)

    @property
    def patience_seconds(self) -> float:
        return PATIENCE_SECONDS + max(self.pending.values(), default=0) / SLOW_BYTES_PER_SECOND


@dataclass
class _Blame:
    """A value that failed alone."""

    failures: int
    due: float
    address: str


class Transfers:
    """The copies that one worker hands out. Times are seconds of one clock that never goes back."""

    def __init__(self, ask: Callable[[str, list[Any]], None]) -> None:
        self._ask = ask
        self._flights: list[_Flight] = []
        self._trials: deque[tuple[list[Any], str]] = deque()  # (keys, the address that failed them)
        self._blamed: dict[Any, _Blame] = {}
        self._since: dict[Any, float] = {}  # key -> when it first failed
        self._words: dict[Any, str] = {}  # key -> why it last failed
        self._spurious = 0

    def failed(self, keys: Iterable[Any], address: str, words: str) -> bool:
        """Take a recipient's word that it could not get `keys`; return whether it was asked for one of them."""
        found = False
        for flight in self._flights:
            if flight.address == address:
                failed = [key for key in keys if flight.pending.pop(key, None) is not None]
                flight.failures |= dict.fromkeys(failed, words)
                found = found or bool(failed)
        return found

    def not_found(self, keys: Iterable[Any], address: str) -> bool:
        """Take a recipient's word that it knows nobody to get `keys` from; return whether that is a failure.

        Once is none: a value that failed there before is asked for again in this way. It says so again when the
        connection broke while it tried.
        """
        asked = [flight for flight in self._flights if flight.address == address]
        for flight in asked:
            flight.not_found.update(key for key in keys if key in flight.pending)
        lost = [key for flight in asked for key, times in flight.not_found.items() if times >= NOT_FOUND]
        return self.failed(lost, address, "the connection broke, as the log of the worker that was to take it says")

    def step(
        self, wanted: Mapping[Any, int], recipients: Mapping[str, int], present: Collection[str], now: float
    ) -> None:
        """Follow what is under way, and ask for what is next.

        `wanted`: key -> bytes of what nobody else has yet. `recipients`: address -> bytes it holds, of those that may
        take it. `present`: the addresses of all workers.
        """
        self._forget_except(wanted, now)
        flights, self._flights = self._flights, []
        for flight in flights:
            self._follow(flight, recipients, present, now)
        if not recipients or any(flight.is_trial for flight in self._flights):
            return
        known = {key for keys in self._under_way() for key in keys} | self._blamed.keys()
        fresh = {key: nbytes for key, nbytes in wanted.items() if key not in known}
        if fresh:
            self._ask_in_bulk(fresh, recipients, now)
        elif not self._flights:
            self._try_next(wanted, recipients, now)

    def stuck(self, now: float) -> dict[Any, str]:
        """Return key -> why, for what failed so often, or for so long, that people should know."""
        told = {key for key, blame in self._blamed.items() if blame.failures >= FAILURES}
        told |= {key for key, since in self._since.items() if now - since >= TOLD_SECONDS}
        return {key: words for key, words in self._words.items() if key in told}

    @property
    def last_words(self) -> str:
        """Why the latest of what is not there yet failed, empty when nothing did."""
        return next(reversed(self._words.values()), "")

    def _under_way(self) -> Iterable[Iterable[Any]]:
        requests = ([*flight.pending, *flight.failures] for flight in self._flights)
        return itertools.chain(requests, (keys for keys, _ in self._trials))

    def _forget_except(self, wanted: Mapping[Any, int], now: float) -> None:
        """Drop what has arrived, or is not held any more."""
        for flight in self._flights:
            pending = {key: nbytes for key, nbytes in flight.pending.items() if key in wanted}
            if len(pending) < len(flight.pending):
                flight.pending, flight.moved_at, self._spurious = pending, now, 0
            flight.failures = {key: words for key, words in flight.failures.items() if key in wanted}
        trials = (([key for key in keys if key in wanted], address) for keys, address in self._trials)
        self._trials = deque((keys, address) for keys, address in trials if keys)
        for kept in (self._blamed, self._since, self._words):
            for key in kept.keys() - wanted.keys():
                del kept[key]

    def _follow(self, flight: _Flight, recipients: Mapping[str, int], present: Collection[str], now: float) -> None:
        if flight.address not in present:
            self._fail_rest(flight, "the worker that was to take it went away")
        elif flight.address not in recipients:
            self._let_go(flight)
        elif now - flight.moved_at > flight.patience_seconds:
            self._fail_rest(flight, f"nothing arrived within {now - flight.moved_at:.0f} s")
        if flight.pending:
            self._flights.append(flight)
        else:
            self._judge(flight, now)

    def _fail_rest(self, flight: _Flight, words: str) -> None:
        flight.failures |= dict.fromkeys(flight.pending, words)
        flight.pending = {}

    def _let_go(self, flight: _Flight) -> None:
        """Ask somebody else: this one takes no data any more, which is nobody's fault."""
        if flight.is_trial:
            self._trials.appendleft((list(flight.pending), ""))
        flight.pending = {}

    def _judge(self, flight: _Flight, now: float) -> None:
        """Say what the failures of a request that is over mean."""
        spurious = [key for key, words in flight.failures.items() if words.startswith(OUT_OF_STEP)]
        if spurious and self._spurious < SPURIOUS:
            self._spurious += 1
            self._trials.appendleft((spurious, ""))
        else:
            spurious = []
        failed = [key for key in flight.failures if key not in set(spurious)]
        for key in failed:
            self._since.setdefault(key, now)
            self._words.pop(key, None)  # the latest stands last
            self._words[key] = flight.failures[key]
        if failed:
            self._spurious = 0
        if len(failed) == 1 == flight.size:
            self._blame(failed[0], flight.address, now)
        elif failed:
            half = (len(failed) + 1) // 2
            parts = [part for part in (failed[half:], failed[:half]) if part]
            self._trials.extendleft((part, flight.address) for part in parts)

    def _blame(self, key: Any, address: str, now: float) -> None:
        failures = self._blamed[key].failures + 1 if key in self._blamed else 1
        self._blamed[key] = _Blame(failures, now + backoff_seconds(failures), address)

    def _ask_in_bulk(self, fresh: Mapping[Any, int], recipients: Mapping[str, int], now: float) -> None:
        """Ask all recipients at once, each for as much as keeps them equally full."""
        load = [(held, address) for address, held in recipients.items()]
        heapq.heapify(load)
        shares: dict[str, dict[Any, int]] = {}
        for key, nbytes in fresh.items():
            held, address = load[0]
            heapq.heapreplace(load, (held + nbytes, address))
            shares.setdefault(address, {})[key] = nbytes
        for address, share in shares.items():
            self._send(_Flight(address, share, now))

    def _try_next(self, wanted: Mapping[Any, int], recipients: Mapping[str, int], now: float) -> None:
        """Ask for one part of what failed before, of another recipient where there is one."""
        if self._trials:
            keys, failed_at = self._trials.popleft()
        else:
            due = [(blame.due, key) for key, blame in self._blamed.items() if blame.due <= now]
            if not due:
                return
            key = min(due, key=lambda pair: pair[0])[1]
            keys, failed_at = [key], self._blamed[key].address
        others = [address for address in recipients if address != failed_at] or list(recipients)
        address = min(others, key=recipients.__getitem__)
        self._send(_Flight(address, {key: wanted[key] for key in keys}, now, is_trial=True))

    def _send(self, flight: _Flight) -> None:
        self._flights.append(flight)
        self._ask(flight.address, list(flight.pending))


def backoff_seconds(failures: int) -> float:
    """Return how long to wait after so many failures (1 or more) in a row."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (min(failures, 30) - 1), LAST_BACKOFF_SECONDS)


def plain_words(exception_text: str) -> str:
    r"""Return a worker's `exception_text` for people: the kind and the first line, `ValueError: no such device`.

    It is the error's repr, cut by distributed: a line's end in it is written as `\n`.
    """
    kind, bracket, said = exception_text.partition("(")
    if not bracket or not kind.isidentifier():
        return exception_text.split("\n", maxsplit=1)[0][:200]
    quote = said[:1] if said[:1] in ("'", '"') else ""
    line = said.removeprefix(quote).split("\\n", maxsplit=1)[0].removesuffix(")").removesuffix(quote)
    return f"{kind}: {line}"[:200]
