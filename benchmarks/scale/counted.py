"""The operator as it is, with counters: `python -m benchmarks.scale.counted FILE`.

A few functions are wrapped to count their calls, which costs each well under a microsecond; nothing else differs from
`python -m gpudask`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from benchmarks.scale.counters import Counters
from gpudask.__main__ import main
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.scheduler import SchedulerClient
from gpudask.reconcile.reconciler import Reconciler
from gpudask.reconcile.registry import Registry


def _count(counters: Counters, name: str, owner: type, method: str) -> None:
    """Count the calls of `owner.method` as `name`."""
    original: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        counters.add(name)
        return original(*args, **kwargs)

    setattr(owner, method, counted)


def _count_items(counters: Counters, name: str, owner: type, method: str) -> None:
    """Count what the generators of `owner.method` yield as `name`."""
    original: Callable[..., AsyncGenerator[Any]] = getattr(owner, method)

    @functools.wraps(original)
    async def counted(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        async with aclosing(original(*args, **kwargs)) as items:
            async for item in items:
                counters.add(name)
                yield item

    setattr(owner, method, counted)


def _run(path: Path) -> int:
    counters = Counters.open(path)
    _count(counters, "passes", Reconciler, "make")
    _count_items(counters, "events", Kubernetes, "stream")
    _count(counters, "events", Registry, "seen")
    _count(counters, "answers", SchedulerClient, "demand")
    _count(counters, "requests", Kubernetes, "request")
    _count(counters, "statuses", Kubernetes, "write_status")
    sys.argv = sys.argv[:1]
    return main()


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1])))
