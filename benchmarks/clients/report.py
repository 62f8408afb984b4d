"""Figures in words: the table and the last line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.startup.report import FLOOR, GPUDASK, NOT_MEASURED, PEER, Results, times

_ROWS = (
    ("call", "the call, until it returns"),
    ("ready_2", "the call, until 2 workers are ready"),
    ("first_result", "the call, until the first result"),
    ("imports", "the imports, before the call: not counted"),
)


def table(results: Results, contestants: Sequence[str]) -> str:
    """Markdown: a row for each figure, a column for each contestant; median (min-max), n, ratio to the floor."""
    lines = [["", *contestants], ["---"] * (len(contestants) + 1)]
    lines += [[words, *(_cell(results, title, figure) for title in contestants)] for figure, words in _ROWS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def last_line(results: Results) -> str:
    """One line for whoever reads figures by machine: until 2 workers are ready, as ratios to the floor."""
    ours, theirs = (times(results.ratio(title, "ready_2")) for title in (GPUDASK, PEER))
    return f"clients: kubecluster_2={ours} peer_2={theirs}"


def _cell(results: Results, contestant: str, figure: str) -> str:
    sample = results.sample(contestant, figure)
    if sample is None:
        return NOT_MEASURED
    ratio = None if contestant == FLOOR else results.ratio(contestant, figure)
    return f"{sample}, n={len(sample.seconds)}" + (f", {times(ratio)}" if ratio is not None else "")
