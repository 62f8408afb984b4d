"""The summary of the demonstration, each figure with its source. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from local.demo.model import View


@dataclass(frozen=True)
class Line:
    """A statement and who says so."""

    what: str
    value: str
    source: str


def summarize(view: View, before: View, report: dict[str, Any], gpu_pools: list[str]) -> list[Line]:
    """Summarize what ran where, the GPU pools over time, waiting and GPU-seconds. `before`: as the pipeline began."""
    transitions = "the scheduler's transitions"
    lines = [
        Line(f"{step} ran on", _by_pool(workers), transitions)
        for step, workers in report["placement"].items()
        if workers
    ]
    lines += [Line(f"pool {name}, ready pods", over_time(view, name), "watch of the pods") for name in gpu_pools]
    if report.get("gpu_wait_seconds") is not None:
        waited = f"{report['gpu_wait_seconds']:.1f} s"
        lines.append(Line("first GPU task -> first GPU worker", waited, "the scheduler's clock"))
    held, used = (now - then for now, then in zip(view.gpu_seconds(), before.gpu_seconds(), strict=True))
    share = f" ({used / held:.0%} of what was held)" if held else ""
    lines.append(Line("GPU-seconds held", f"{held:.0f}", "status.pools[].gpuSecondsHeld"))
    lines.append(Line("GPU-seconds used", f"{used:.0f}{share}", "status.pools[].gpuSecondsUsed"))
    lines.append(Line("result", "right" if report["right"] else "WRONG", "compared with plain NumPy"))
    return lines


def over_time(view: View, pool: str) -> str:
    """The pool's ready pods, each size with the second from which it held: `0 -> 1 (8 s) -> 0 (40 s)`."""
    steps: list[str] = []
    last = None
    for sample in view.samples:
        ready = next((item.ready for item in sample.pools if item.name == pool), 0)
        if ready != last:
            steps.append(f"{ready} ({sample.at:.0f} s)" if steps else str(ready))
            last = ready
    return " -> ".join(steps) or "0"


def _by_pool(workers: dict[str, int]) -> str:
    """Worker -> tasks, summed by pool: `pool gpu: 24 tasks on 3 workers`."""
    tasks: dict[str, list[int]] = {}
    for worker, count in workers.items():
        pool = worker.split("-worker-")[0].rsplit("-", 1)[-1] if "-worker-" in worker else worker
        tasks.setdefault(pool, []).append(count)
    return "; ".join(
        f"pool {pool}: {sum(counts)} tasks on {len(counts)} worker{'s' if len(counts) > 1 else ''}"
        for pool, counts in sorted(tasks.items())
    )
