"""The heap of the operator's process: what Python's collector and the C library keep of it once work is done.

A thousand clusters that end leave no objects behind, but memory stays (docs/scale-benchmark.md has figures):

- Garbage in cycles waits. A full collection begins only when what is new makes up a quarter of all that lives, and that
  counts hundreds of thousands of objects of imported modules, which never end. Each full collection walks through all
  of those, too, and meanwhile the event loop stands still. So what is there at the start is set apart (`gc.freeze`).
- A process at rest makes nothing new, so nothing is collected. Here it is, once it has come to rest.
- Python's own allocator gives back 1 MiB at a time, and no part of it while any object in it lives. So the image
  switches it off (`PYTHONMALLOC=malloc`).
- The C library's gives back the end of its heap only, and keeps there what was once large: 256 KiB for each connection,
  whole lists of objects. It is told to keep large blocks apart, and at rest to give back every page that is free.

The last needs glibc; with another C library nothing of it happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from typing import Any

_LOG = logging.getLogger(__name__)
# What mallopt sets, as in glibc's malloc.h. The thresholds are its defaults, in bytes: set, they no longer grow by
# themselves. By default a block of 256 KiB that was freed makes all later ones of up to that size part of the heap.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 128 * 1024
_ARENAS = 1  # heaps: threads of Python take turns anyway
_LOOK_SECONDS = 10.0
# Work is counted in collections of the middle generation, each of which stands for 7,000 objects that were made and
# have not ended meanwhile. Between two looks at most so many are rest; so many since the last time are worth a look.
_RESTING, _WORTHWHILE = 2, 5
# Who never rests gives back all the same, but seldom: it stops the event loop for as long as a full collection takes.
_LONGEST_SECONDS = 600.0


def configure_allocator() -> None:
    """Have the C library keep large blocks apart from its heap, to be given back when they are freed, and one heap."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def set_apart() -> None:
    """Set all that is there apart from what is collected: it stays until the process ends, or nobody refers to it."""
    gc.unfreeze()  # an operator before this one in the same process, of which nothing may stay
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Collect garbage in cycles, and give back the pages that are free, which takes some milliseconds."""
    collected = gc.collect()
    if (trim := _glibc("malloc_trim")) is not None:
        trim(ctypes.c_size_t(0))
    _LOG.debug("at rest: %d objects were collected", collected)


def collections() -> int:
    """How often the middle generation was collected so far: a measure of how much is made that stays for a while."""
    return int(gc.get_stats()[1]["collections"])


class Heap:
    """Gives memory back when the operator has come to rest after work, or has worked on for `longest_seconds`.

    `work`: a count that grows with what is made. `give_back`: what gives back, and is no work itself.
    """

    def __init__(
        self,
        work: Callable[[], int] = collections,
        give_back: Callable[[], None] = give_back,
        *,
        look_seconds: float = _LOOK_SECONDS,
        longest_seconds: float = _LONGEST_SECONDS,
    ) -> None:
        self._work = work
        self._give_back = give_back
        self._look_seconds = look_seconds
        self._longest_seconds = longest_seconds

    async def run(self) -> None:
        """Set apart what is there, and give back from then on; never returns."""
        set_apart()
        given_at = before = self._work()
        waited = 0.0
        while True:
            await asyncio.sleep(self._look_seconds)
            waited += self._look_seconds
            now = self._work()
            rests, before = now - before <= _RESTING, now
            if now - given_at >= _WORTHWHILE and (rests or waited >= self._longest_seconds):
                self._give_back()
                given_at, waited = now, 0.0


def _glibc(name: str) -> Any:
    """A function of the C library that this process runs with; None where it has none of this name."""
    return getattr(ctypes.CDLL(None), name, None)
