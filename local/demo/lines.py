"""The demonstration as lines of text: what a new fact is worth saying. Pure."""

from __future__ import annotations

from local.demo.model import EventFact, Fact, LineFact, PoolView, View


def lines_of(before: View, after: View, fact: Fact, *, with_pools: bool) -> list[str]:
    """The lines to print when `fact` made `after` of `before`; changes of pools only where no live table shows them."""
    match fact:
        case LineFact(text=text):
            return [f"{fact.at:6.1f} s  | {text}"]
        case EventFact(kind=kind, reason=reason, message=message):
            return [f"{fact.at:6.1f} s  {kind.lower()} {reason}: {message}"]
        case _ if with_pools:
            changed = [pool for pool in after.pools if pool != before.pool(pool.name)]
            return [f"{fact.at:6.1f} s  pool {pool_line(pool)}" for pool in changed]
        case _:
            return []


def pool_line(pool: PoolView) -> str:
    """One pool in a line."""
    parts = [f"{pool.name}: {pool.ready}/{pool.desired} ready"]
    parts += [f"{count} {what}" for count, what in ((pool.pending, "pending"), (pool.leaving, "leaving")) if count]
    parts += [f"{pool.gpus_held} GPUs held"] if pool.gpus_held else []
    parts += [f"tasks {pool.waiting} waiting, {pool.running} assigned"]
    return ", ".join(parts)
