"""Figures in words: medians, spreads, ratios to the floor, the table and the last line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.testbed.report import NOT_MEASURED, Sample, markdown, one_line, with_unit

FLOOR, GPUDASK, PEER = "floor", "gpudask", "dask-kubernetes"
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


class Results:
    """All samples, by a participant's title and the figure."""

    def __init__(self, turns: Iterable[tuple[str, Mapping[str, float]]]) -> None:
        collected: dict[tuple[str, str], list[float]] = {}
        for title, figures in turns:
            for name, seconds in figures.items():
                collected.setdefault((title, name), []).append(seconds)
        self._samples = {key: Sample(tuple(values)) for key, values in collected.items()}

    def sample(self, title: str, figure: str) -> Sample | None:
        """The values of one figure; None where it was not measured."""
        return self._samples.get((title, figure))

    def ratio(self, title: str, figure: str) -> float | None:
        """The participant's median through the floor's."""
        theirs, floor = self.sample(title, figure), self.sample(FLOOR, figure)
        return theirs.median / floor.median if theirs and floor else None

    def down_extra_seconds(self, title: str) -> float | None:
        """How much longer 10 -> 2 takes than the pods need to end once they are asked to, as the floor shows it."""
        gone, termination = self.sample(title, "down_8_gone"), self.sample(FLOOR, "termination_8")
        return gone.median - termination.median if gone and termination else None


def table(results: Results, titles: Sequence[str]) -> str:
    """Markdown: a row for each figure, a column for each participant; median (min-max), n, ratio to the floor."""
    rows = [[words, *(_cell(results, title, name) for title in titles)] for name, words in _ROWS]
    extra = (with_unit(results.down_extra_seconds(title), "s") for title in titles)
    rows.append(["the same, beyond what the floor's pods need to end", *extra])
    floor = results.sample(FLOOR, "termination_8")
    if floor:
        rows.append(["the floor's 8 pods, asked to end until gone", floor.spread()])
    return markdown(["", *titles], rows)


def _cell(results: Results, title: str, name: str) -> str:
    if title == PEER and name.startswith("first_gpu") and results.sample(title, name) is None:
        return "cannot"
    return cell(results, title, name, with_ratio=not name.startswith("down"))


def cell(results: Results, title: str, figure: str, *, with_ratio: bool = True) -> str:
    """Median (least-most), n, and the ratio to the floor where both have the figure."""
    sample = results.sample(title, figure)
    if sample is None:
        return NOT_MEASURED
    ratio = results.ratio(title, figure) if with_ratio and title != FLOOR else None
    return sample.text() + (f", {times(ratio)}" if ratio is not None else "")


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine."""
    gpu_pod = results.sample(GPUDASK, "first_gpu_pod")
    values = {
        "ready_2": times(results.ratio(GPUDASK, "ready_2")),
        "ready_10": times(results.ratio(GPUDASK, "ready_10")),
        "up_8": times(results.ratio(GPUDASK, "up_8")),
        "down_8_extra": with_unit(results.down_extra_seconds(GPUDASK), "s"),
        "first_gpu_pod": with_unit(gpu_pod.median if gpu_pod else None, "s"),
        "peer_ready_2": times(results.ratio(PEER, "ready_2")),
        "peer_up_8": times(results.ratio(PEER, "up_8")),
        "peer_down_8_extra": with_unit(results.down_extra_seconds(PEER), "s"),
    }
    return one_line("startup", values)


def times(ratio: float | None) -> str:
    """`1.20x`, or that it was not measured."""
    return with_unit(ratio, "x")
