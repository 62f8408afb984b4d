"""Figures in words: medians, spreads, ratios to the floor, the table and the last line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

FLOOR, GPUDASK, PEER = "floor", "gpudask", "dask-kubernetes"
NOT_MEASURED = "n/a"
_ROWS = (
    ("ready_2", "applied until 2 workers are registered"),
    ("ready_10", "applied until 10 workers are registered"),
    ("up_8", "2 -> 10 until 10 are registered"),
    ("down_8_scheduler", "10 -> 2 until the scheduler shows 2"),
    ("down_8_asked", "10 -> 2 until the first pod is asked to end"),
    ("down_8_gone", "10 -> 2 until the 8 pods are gone"),
    ("first_gpu_pod", "first GPU task until its pod exists"),
    ("first_gpu_worker", "first GPU task until its worker is registered"),
    ("first_gpu_result", "first GPU task until its result"),
)


@dataclass(frozen=True)
class Sample:
    """The seconds of one figure of one contestant, over all rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median; there is at least one value."""
        return median(self.seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        return f"{self.median:.2f} s ({low:.2f}-{high:.2f})"


class Results:
    """All samples, by contestant and figure."""

    def __init__(self, turns: Iterable[tuple[str, Mapping[str, float]]]) -> None:
        collected: dict[tuple[str, str], list[float]] = {}
        for contestant, figures in turns:
            for figure, seconds in figures.items():
                collected.setdefault((contestant, figure), []).append(seconds)
        self._samples = {key: Sample(tuple(values)) for key, values in collected.items()}

    def sample(self, contestant: str, figure: str) -> Sample | None:
        """The values of one figure; None where it was not measured."""
        return self._samples.get((contestant, figure))

    def ratio(self, contestant: str, figure: str) -> float | None:
        """The contestant's median through the floor's."""
        theirs, floor = self.sample(contestant, figure), self.sample(FLOOR, figure)
        return theirs.median / floor.median if theirs and floor else None

    def down_extra_seconds(self, contestant: str) -> float | None:
        """How much longer 10 -> 2 takes than the pods need to end once they are asked to, as the floor shows it."""
        gone, termination = self.sample(contestant, "down_8_gone"), self.sample(FLOOR, "termination_8")
        return gone.median - termination.median if gone and termination else None


def table(results: Results, contestants: Sequence[str]) -> str:
    """Markdown: a row for each figure, a column for each contestant; median (min-max), n, ratio to the floor."""
    lines = [["", *contestants], ["---"] * (len(contestants) + 1)]
    lines += [[words, *(_cell(results, title, figure) for title in contestants)] for figure, words in _ROWS]
    extra = (_seconds(results.down_extra_seconds(title)) for title in contestants)
    lines.append(["the same, beyond what the floor's pods need to end", *extra])
    floor = results.sample(FLOOR, "termination_8")
    if floor:
        lines.append(["the floor's 8 pods, asked to end until gone", str(floor), *[""] * (len(contestants) - 1)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(results: Results, contestant: str, figure: str) -> str:
    sample = results.sample(contestant, figure)
    if sample is None:
        return "cannot" if contestant == PEER and figure.startswith("first_gpu") else NOT_MEASURED
    ratio = results.ratio(contestant, figure) if contestant != FLOOR and not figure.startswith("down") else None
    return f"{sample}, n={len(sample.seconds)}" + (f", {ratio:.2f}x" if ratio is not None else "")


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine."""
    gpu_pod = results.sample(GPUDASK, "first_gpu_pod")
    values = {
        "ready_2": times(results.ratio(GPUDASK, "ready_2")),
        "ready_10": times(results.ratio(GPUDASK, "ready_10")),
        "up_8": times(results.ratio(GPUDASK, "up_8")),
        "down_8_extra": _seconds(results.down_extra_seconds(GPUDASK)),
        "first_gpu_pod": _seconds(gpu_pod.median if gpu_pod else None),
        "peer_ready_2": times(results.ratio(PEER, "ready_2")),
        "peer_up_8": times(results.ratio(PEER, "up_8")),
        "peer_down_8_extra": _seconds(results.down_extra_seconds(PEER)),
    }
    return "startup: " + " ".join(f"{name}={value}" for name, value in values.items())


def times(ratio: float | None) -> str:
    """`1.20x`, or that it was not measured."""
    return NOT_MEASURED if ratio is None else f"{ratio:.2f}x"


def _seconds(seconds: float | None) -> str:
    return NOT_MEASURED if seconds is None else f"{seconds:.2f}s"
