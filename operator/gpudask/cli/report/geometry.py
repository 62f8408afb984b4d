"""Where the shapes of the charts lie: steps over time, their axes, shares of a bar. Numbers in, numbers out.

No library draws these. Of those that make SVG without JavaScript, pygal writes fixed colours into every chart, so that
a page cannot be light and dark, and scales its letters with the picture, so that a narrow screen cannot read them; the
others that we found have no time axis, or a single author and few users. matplotlib is too large for a client. What is
needed here is a step function and two axes: the shapes are SVG that stretches with the page, and everything that is
read is HTML beside it.

A chart is WIDTH by HEIGHT units, from its upper left corner, stretched to whatever room it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

WIDTH, HEIGHT = 1000.0, 100.0
_MOST_TICKS = 7
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 14, 30, 90, 180, 365)),
)
_ROUND = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, in percent of its length, and what is written there."""

    percent: float
    label: str


@dataclass(frozen=True)
class Span:
    """A stretch of time, in seconds since 1970; never empty."""

    begin: float
    end: float

    def x(self, at: float) -> float:
        """Where a time lies, in units of the chart; what is outside lies on the edge."""
        share = (at - self.begin) / max(self.end - self.begin, 1.0)
        return round(min(max(share, 0.0), 1.0) * WIDTH, 2)


def top(values: Sequence[float]) -> float:
    """The upper end of an axis from zero for these values: the next round number, 1 at least."""
    largest = max(values, default=0.0)
    if largest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next(power * step for step in _ROUND if power * step >= largest)


def steps(times: Sequence[float], values: Sequence[float], span: Span, highest: float) -> str:
    """The line of a step function, as the `d` of an SVG path: each value holds until the next, the last to the end."""
    if not times:
        return ""
    parts: list[str] = []
    ends = [*times[1:], span.end]
    for (at, end), value in zip(zip(times, ends, strict=True), values, strict=True):
        if end <= span.begin:
            continue
        y = round(HEIGHT - min(value / highest, 1.0) * HEIGHT, 2)
        parts.append(f"{'L' if parts else 'M'}{span.x(at):g} {y:g}H{span.x(end):g}")
    return "".join(parts)


def area(line: str) -> str:
    """The area between a line of `steps` and the axis."""
    if not line:
        return ""
    begin = line[1:].partition(" ")[0]
    return f"{line}V{HEIGHT:g}H{begin}Z"


def time_ticks(span: Span) -> list[Tick]:
    """Marks at round times in UTC, 7 at most; where a day begins its date is written."""
    length = max(span.end - span.begin, 1.0)
    step = next((step for step in _STEPS if length / step <= _MOST_TICKS), _STEPS[-1])
    while length / step > _MOST_TICKS:
        step *= 2
    first = math.ceil(span.begin / step) * step
    ticks = []
    for index in range(_MOST_TICKS + 1):
        at = first + index * step
        if at > span.end:
            break
        ticks.append(Tick(round(span.x(at) / WIDTH * 100, 2), _label(at, step)))
    return ticks


def _label(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if step >= _DAY or at % _DAY == 0:
        return f"{moment.day} {moment:%b}" if step < 365 * _DAY else f"{moment:%b %Y}"
    return f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}"


def amount_ticks(highest: float) -> list[Tick]:
    """Marks of an axis from zero: its end, its middle where that is a whole number, and zero; percent from below."""
    half = highest / 2
    middle = [Tick(50.0, short(half))] if half == int(half) else []
    return [Tick(100.0, short(highest)), *middle, Tick(0.0, "0")]


def short(value: float) -> str:
    """A number in few letters: 950, 1.2k, 35M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def shares(amounts: Sequence[float]) -> list[tuple[float, float]]:
    """The parts of a whole bar, in percent: where each begins and how wide it is. Together they fill it."""
    total = math.fsum(amounts)
    if total <= 0:
        return [(0.0, 0.0) for _ in amounts]
    edges = [0.0]
    for amount in amounts:
        edges.append(edges[-1] + amount / total * 100)
    return [(round(begin, 3), round(end - begin, 3)) for begin, end in pairwise(edges)]
