"""The report: a table of figures, and the line for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.ha.takeover import KILLED, NEITHER, STOPPED, Rest, Takeover
from benchmarks.testbed.report import is_met, markdown, one_line, with_unit

_HEAD = ("", "n", "least", "median", "most", "wanted", "met")
# What is wanted on 2 cores: medians.
_KILLED_SECONDS, _STOPPED_SECONDS, _GAP_SECONDS, _STANDBY_MB = 10.0, 1.0, 10.0, 130.0


@dataclass(frozen=True)
class Results:
    """The figures. `lease_seconds`: how long a Lease holds that nobody renews."""

    takeovers: tuple[Takeover, ...]
    rest: Rest
    lease_seconds: int

    def of(self, how: str) -> list[Takeover]:
        """The takeovers of one kind."""
        return [item for item in self.takeovers if item.how == how]

    @property
    def standby_mb(self) -> list[float]:
        """What each standby held just before it took over."""
        return [item.standby.resident for item in self.takeovers]


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine: medians."""
    killed, stopped = results.of(KILLED), results.of(STOPPED)
    values = {
        "takeover_killed": with_unit(median(item.acts for item in killed), "s"),
        "takeover_stopped": with_unit(median(item.acts for item in stopped), "s"),
        "scale_gap": with_unit(median(item.gap for item in killed), "s"),
        "standby_memory": with_unit(median(results.standby_mb), "MB", 0),
    }
    return one_line("ha", values)


def table(results: Results) -> str:
    """Markdown: what, how often, least, median and most, what is wanted, whether the median is that."""
    return markdown(_HEAD, _rows(results))


def notes(results: Results) -> str:
    """What the table does not say."""
    rest, names = results.rest, (("leader", results.rest.leader), ("standby", results.rest.standby))
    asked = (f"the {name} {rest.rate(requests):.2f} a second {requests or ''}".rstrip() for name, requests in names)
    return (
        f"At rest, {rest.seconds:g} s, requests to the API server beside watches and the Lease: {', '.join(asked)};"
        f" for the Lease {rest.lease / rest.seconds:.1f} a second of both; {rest.polls} long polls of schedulers.\n"
        f"A Lease that nobody can give back, as of a lost node, holds for {results.lease_seconds} s."
    )


def kept(results: Results) -> dict[str, Any]:
    """All figures as JSON."""
    return {"ha": last_line(results), **asdict(results)}


def _rows(results: Results) -> Iterator[tuple[str, ...]]:
    killed, stopped, neither = (results.of(how) for how in (KILLED, STOPPED, NEITHER))
    rows: tuple[tuple[str, Sequence[float], float | None], ...] = (
        ("killed: until the other acts", [item.acts for item in killed], _KILLED_SECONDS),
        ("killed: until the Lease names it", [item.held for item in killed], None),
        ("killed: until a GPU pod is there", [item.gap for item in killed], _GAP_SECONDS),
        ("stopped: until the other acts", [item.acts for item in stopped], _STOPPED_SECONDS),
        ("stopped: until the Lease names it", [item.held for item in stopped], None),
        ("stopped: until a GPU pod is there", [item.gap for item in stopped], None),
        ("neither: until a deleted pod is replaced", [item.acts for item in neither], None),
        ("neither: until a GPU pod is there", [item.gap for item in neither], None),
    )
    for what, seconds, wanted in rows:
        bound = ("", "") if wanted is None else (f"<= {wanted:g} s", is_met(median(seconds) <= wanted))
        yield what, *_spread(seconds, ".2f", "s"), *bound
    held, bound = results.standby_mb, (f"< {_STANDBY_MB:g} MB", is_met(median(results.standby_mb) < _STANDBY_MB))
    yield "the standby's resident memory", *_spread(held, ".0f", "MB"), *bound
    shared = [item.standby.proportional for item in results.takeovers]
    yield "of that, shared pages divided", *_spread(shared, ".0f", "MB"), "", ""


def _spread(values: Sequence[float], form: str, unit: str) -> tuple[str, ...]:
    """How many, the least, the median, the most."""
    return str(len(values)), *(f"{value:{form}} {unit}" for value in (min(values), median(values), max(values)))
