"""Transfers of results from one worker to others: requests under way, failures, and retries.

Bookkeeping alone: `send` sends a request, `step` is called at each step of the drain, `failed` when a recipient reports
it.

A worker fetches in batches, and one value that cannot be sent or read fails everything in its batch. So what fails
together is requested again in halves, until what is at fault stands alone. That is tried again ever slower and never
given up: the fault may lie in the recipient. Nothing here takes a request back, because a copy that arrives at that
moment could be lost with it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

FAILURES = 3  # of a value that was requested alone: then it is reported
REPORT_AFTER_SECONDS = 60.0  # after this time it is reported too, alone or not
FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS = 1.0, 300.0
ARRIVAL_SECONDS = 30.0  # without any arrival, beside the time that the largest value takes
SLOW_BYTES_PER_SECOND = 20e6
NOT_FOUND = 2  # times, a second apart, that a recipient reports so of what it was requested
SPURIOUS = 3  # failures in a row that say nothing of the values, before they are taken seriously
# After a failed transfer the sender still waits for its receipt, and takes the next request on that connection for it.
OUT_OF_STEP = "AssertionError: {'op': 'get_data'"


@dataclass
class _Request:
    """One request to one recipient. `is_retry`: of values that failed before, with no other request beside it."""

    address: str
    pending: dict[Any, int]  # key -> bytes
    moved_at: float
    is_retry: bool = False
    not_found: Counter[Any] = field(default_factory=Counter)
    failures: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.size = len(self.pending)

    @property
    def deadline_seconds(self) -> float:
        return ARRIVAL_SECONDS + max(self.pending.values(), default=0) / SLOW_BYTES_PER_SECOND


@dataclass
class _Blame:
    """A value that failed alone."""

    failures: int
    due: float
    address: str


class Transfers:
    """The transfers from one worker. Times are seconds of one clock that never goes back."""

    def __init__(self, send: Callable[[str, list[Any]], None]) -> None:
        self._send_request = send
        self._requests: list[_Request] = []
        self._retries: deque[tuple[list[Any], str]] = deque()  # (keys, the address that failed them)
        self._blamed: dict[Any, _Blame] = {}
        self._since: dict[Any, float] = {}  # key -> when it first failed
        self._errors: dict[Any, str] = {}  # key -> its last error
        self._spurious = 0

    def failed(self, keys: Iterable[Any], address: str, error: str) -> bool:
        """Note that a recipient could not get `keys`; return whether one of them was requested of it."""
        found = False
        for request in self._requests:
            if request.address == address:
                failed = [key for key in keys if request.pending.pop(key, None) is not None]
                request.failures |= dict.fromkeys(failed, error)
                found = found or bool(failed)
        return found

    def not_found(self, keys: Iterable[Any], address: str) -> bool:
        """Note that a recipient knows nobody to get `keys` from; return whether that is a failure.

        Once is none: a value that failed there before is requested again in this way. It reports so again when the
        connection broke while it tried.
        """
        sent = [request for request in self._requests if request.address == address]
        for request in sent:
            request.not_found.update(key for key in keys if key in request.pending)
        lost = [key for request in sent for key, times in request.not_found.items() if times >= NOT_FOUND]
        return self.failed(lost, address, "the connection broke, as the log of the worker that was to take it says")

    def step(
        self, wanted: Mapping[Any, int], recipients: Mapping[str, int], present: Collection[str], now: float
    ) -> None:
        """Follow the requests under way, and send the next.

        `wanted`: key -> bytes of what nobody else has yet. `recipients`: address -> bytes it holds, of those that may
        take it. `present`: the addresses of all workers.
        """
        self._forget_except(wanted, now)
        requests, self._requests = self._requests, []
        for request in requests:
            self._follow(request, recipients, present, now)
        if not recipients or any(request.is_retry for request in self._requests):
            return
        known = {key for keys in self._under_way() for key in keys} | self._blamed.keys()
        fresh = {key: nbytes for key, nbytes in wanted.items() if key not in known}
        if fresh:
            self._send_in_bulk(fresh, recipients, now)
        elif not self._requests:
            self._retry_next(wanted, recipients, now)

    def stuck(self, now: float) -> dict[Any, str]:
        """Return key -> error, for what failed so often, or for so long, that it is reported."""
        reported = {key for key, blame in self._blamed.items() if blame.failures >= FAILURES}
        reported |= {key for key, since in self._since.items() if now - since >= REPORT_AFTER_SECONDS}
        return {key: error for key, error in self._errors.items() if key in reported}

    @property
    def last_error(self) -> str:
        """The latest error of what has not arrived yet, empty when there was none."""
        return next(reversed(self._errors.values()), "")

    def _under_way(self) -> Iterable[Iterable[Any]]:
        requests = ([*request.pending, *request.failures] for request in self._requests)
        return itertools.chain(requests, (keys for keys, _ in self._retries))

    def _forget_except(self, wanted: Mapping[Any, int], now: float) -> None:
        """Drop what has arrived, or is not held any more."""
        for request in self._requests:
            pending = {key: nbytes for key, nbytes in request.pending.items() if key in wanted}
            if len(pending) < len(request.pending):
                request.pending, request.moved_at, self._spurious = pending, now, 0
            request.failures = {key: error for key, error in request.failures.items() if key in wanted}
        retries = (([key for key in keys if key in wanted], address) for keys, address in self._retries)
        self._retries = deque((keys, address) for keys, address in retries if keys)
        for kept in (self._blamed, self._since, self._errors):
            for key in kept.keys() - wanted.keys():
                del kept[key]

    def _follow(self, request: _Request, recipients: Mapping[str, int], present: Collection[str], now: float) -> None:
        if request.address not in present:
            self._fail_rest(request, "the worker that was to take it went away")
        elif request.address not in recipients:
            self._withdraw(request)
        elif now - request.moved_at > request.deadline_seconds:
            self._fail_rest(request, f"nothing arrived within {now - request.moved_at:.0f} s")
        if request.pending:
            self._requests.append(request)
        else:
            self._evaluate(request, now)

    def _fail_rest(self, request: _Request, error: str) -> None:
        request.failures |= dict.fromkeys(request.pending, error)
        request.pending = {}

    def _withdraw(self, request: _Request) -> None:
        """Send it to somebody else: this recipient takes no data any more, which is nobody's fault."""
        if request.is_retry:
            self._retries.appendleft((list(request.pending), ""))
        request.pending = {}

    def _evaluate(self, request: _Request, now: float) -> None:
        """Plan retries for the failures of a request that is over."""
        spurious = [key for key, error in request.failures.items() if error.startswith(OUT_OF_STEP)]
        if spurious and self._spurious < SPURIOUS:
            self._spurious += 1
            self._retries.appendleft((spurious, ""))
        else:
            spurious = []
        failed = [key for key in request.failures if key not in set(spurious)]
        for key in failed:
            self._since.setdefault(key, now)
            self._errors.pop(key, None)  # the latest stands last
            self._errors[key] = request.failures[key]
        if failed:
            self._spurious = 0
        if len(failed) == 1 == request.size:
            self._blame(failed[0], request.address, now)
        elif failed:
            half = (len(failed) + 1) // 2
            parts = [part for part in (failed[half:], failed[:half]) if part]
            self._retries.extendleft((part, request.address) for part in parts)

    def _blame(self, key: Any, address: str, now: float) -> None:
        failures = self._blamed[key].failures + 1 if key in self._blamed else 1
        self._blamed[key] = _Blame(failures, now + backoff_seconds(failures), address)

    def _send_in_bulk(self, fresh: Mapping[Any, int], recipients: Mapping[str, int], now: float) -> None:
        """Send requests to all recipients at once, each for as much as keeps them equally full."""
        load = [(held, address) for address, held in recipients.items()]
        heapq.heapify(load)
        shares: dict[str, dict[Any, int]] = {}
        for key, nbytes in fresh.items():
            held, address = load[0]
            heapq.heapreplace(load, (held + nbytes, address))
            shares.setdefault(address, {})[key] = nbytes
        for address, share in shares.items():
            self._send(_Request(address, share, now))

    def _retry_next(self, wanted: Mapping[Any, int], recipients: Mapping[str, int], now: float) -> None:
        """Request one part of what failed before, of another recipient where there is one."""
        if self._retries:
            keys, failed_at = self._retries.popleft()
        else:
            due = [(blame.due, key) for key, blame in self._blamed.items() if blame.due <= now]
            if not due:
                return
            key = min(due, key=lambda pair: pair[0])[1]
            keys, failed_at = [key], self._blamed[key].address
        others = [address for address in recipients if address != failed_at] or list(recipients)
        address = min(others, key=recipients.__getitem__)
        self._send(_Request(address, {key: wanted[key] for key in keys}, now, is_retry=True))

    def _send(self, request: _Request) -> None:
        self._requests.append(request)
        self._send_request(request.address, list(request.pending))


def backoff_seconds(failures: int) -> float:
    """Return how long to wait after so many failures (1 or more) in a row."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (min(failures, 30) - 1), LAST_BACKOFF_SECONDS)


def short_error(exception_text: str) -> str:
    r"""Return a worker's `exception_text` for people: the kind and the first line, `ValueError: no such device`.

    It is the error's repr, cut by distributed: a line's end in it is written as `\n`.
    """
    kind, bracket, said = exception_text.partition("(")
    if not bracket or not kind.isidentifier():
        return exception_text.split("\n", maxsplit=1)[0][:200]
    quote = said[:1] if said[:1] in ("'", '"') else ""
    line = said.removeprefix(quote).split("\\n", maxsplit=1)[0].removesuffix(")").removesuffix(quote)
    return f"{kind}: {line}"[:200]
