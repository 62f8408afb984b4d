"""The live table: one row a pool. Pure but for rich's renderables."""

from __future__ import annotations

from rich.table import Table

from local.demo.model import View


def table(view: View, name: str, seconds: float) -> Table:
    """The pools of cluster `name` as they are now, `seconds` after the start."""
    phase = view.status.phase or "no status yet"
    result = Table(title=f"{name}  {phase}  {seconds:.0f} s", title_justify="left", min_width=80)
    result.add_column("pool")
    for heading in ("desired", "ready", "pending", "leaving", "GPUs held", "tasks waiting", "running"):
        result.add_column(heading, justify="right")
    result.add_column("why", overflow="ellipsis", no_wrap=True, max_width=40)
    for pool in view.pools:
        numbers = (pool.desired, pool.ready, pool.pending, pool.leaving, pool.gpus_held, pool.waiting, pool.running)
        result.add_row(pool.name, *(str(number) if number else "·" for number in numbers), pool.reason)
    return result
