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
import math
import time
from collections.abc import Callable
from typing import Any

_LOG = logging.getLogger(__name__)
# What mallopt sets, as in glibc's malloc.h. The thresholds are its defaults, in bytes: set, they no longer grow by
# themselves. By default a block of 256 KiB that was freed makes all later ones of up to that size part of the heap.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 128 * 1024
_ARENAS = 1  # heaps: threads of Python take turns anyway
_LOOK_SECONDS = 5.0
_RESTING_SHARE = 0.05  # of a core, between two looks: at rest there are watches, probes and long polls alone
# Of CPU since the last time: what a hundred clusters take that come and go, or a thousand that rest in some minutes. A
# full collection of what these have takes 0.1 s, in which the event loop stands still.
_WORTHWHILE_SECONDS = 5.0
_LONGEST_SECONDS = 600.0
# By then reflectors have forgotten what was deleted (clients/deletions.py), of which a little stood in each page.
_AGAIN_SECONDS = 400.0


def configure_allocator() -> None:
    """Have the C library keep large blocks apart from its heap, to be given back when they are freed, and one heap."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Collect garbage in cycles, and give back the pages that are free."""
    collected = gc.collect()
    _trim()
    _LOG.debug("memory is given back; %d objects were in cycles", collected)


def set_apart() -> None:
    """Set all that is there apart from what is collected: it stays until the process ends, or nobody refers to it."""
    gc.unfreeze()  # an operator before this one in the same process, of which nothing may stay
    gc.collect()
    gc.freeze()
    _trim()


class Heap:
    """Gives memory back when the operator has come to rest after work, or has worked on for `longest_seconds`.

    `work`: the CPU seconds that were used so far; `worthwhile_seconds` of these are work. It looks each `look_seconds`.
    Where it has given back, it does so once more after `again_seconds` of rest.
    """

    def __init__(
        self,
        work: Callable[[], float] = time.process_time,
        give_back: Callable[[], None] = give_back,
        set_apart: Callable[[], None] = set_apart,
        *,
        look_seconds: float = _LOOK_SECONDS,
        longest_seconds: float = _LONGEST_SECONDS,
        again_seconds: float = _AGAIN_SECONDS,
        worthwhile_seconds: float = _WORTHWHILE_SECONDS,
    ) -> None:
        self._work = work
        self._give_back = give_back
        self._set_apart = set_apart
        self._look_seconds = look_seconds
        self._longest_seconds = longest_seconds
        self._again_seconds = again_seconds
        self._worthwhile_seconds = worthwhile_seconds

    async def run(self) -> None:
        """Set apart what is there, and give back from then on; never returns."""
        self._set_apart()
        given_at = before = self._work()
        worked_on, rests_until_again = 0.0, math.inf
        while True:
            await asyncio.sleep(self._look_seconds)
            now = self._work()
            rests, before = now - before <= _RESTING_SHARE * self._look_seconds, now
            worked_on = 0.0 if rests else worked_on + self._look_seconds
            rests_until_again -= self._look_seconds if rests else 0.0
            if now - given_at >= self._worthwhile_seconds and (rests or worked_on >= self._longest_seconds):
                self._give_back()
                given_at, worked_on, rests_until_again = now, 0.0, self._again_seconds
            elif rests_until_again <= 0:
                self._give_back()
                rests_until_again = math.inf


def _trim() -> None:
    """Give back every page of the C library's heap that is free; it takes some milliseconds."""
    if (trim := _glibc("malloc_trim")) is not None:
        trim(ctypes.c_size_t(0))


def _glibc(name: str) -> Any:
    """A function of the C library that this process runs with; None where it has none of this name."""
    return getattr(ctypes.CDLL(None), name, None)
