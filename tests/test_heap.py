"""What the operator's process gives back, and when: as a table, and of a process's resident memory."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys

import pytest

from gpudask.heap import Heap
from tests.virtual_time import in_virtual_time

_LOOK_SECONDS = 10.0


def given_back(*work: float) -> list[int]:
    """At which look, the first is 1, memory is given back; `work`: CPU seconds at the start, and at each look."""
    apart = list[float]()

    async def look() -> list[int]:
        counts, given = iter(work), list[int]()
        loop = asyncio.get_running_loop()

        def give_back() -> None:
            given.append(round(loop.time() / _LOOK_SECONDS))

        looking = Heap(
            lambda: next(counts),
            give_back,
            lambda: apart.append(loop.time()),
            look_seconds=_LOOK_SECONDS,
            longest_seconds=5 * _LOOK_SECONDS,
            again_seconds=6 * _LOOK_SECONDS,
            worthwhile_seconds=2.0,
        )
        task = asyncio.create_task(looking.run())
        await asyncio.sleep((len(work) - 0.5) * _LOOK_SECONDS)
        task.cancel()
        return given

    looks = in_virtual_time(look())
    assert apart == [0.0], "what is there at the start is set apart, once"
    return looks


@pytest.mark.parametrize(
    ("work", "looks"),
    [
        pytest.param((7, 7, 7, 7), [], id="who has done nothing has nothing to give back"),
        pytest.param((0, 9, 9.1, 9.2, 9.3), [2], id="once, when it has come to rest"),
        pytest.param((0, 9, 18, 27, 27.1, 27.1), [4], id="not while it works"),
        pytest.param((0, 9, 9, 18, 18), [2, 4], id="after each work"),
        pytest.param((0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4), [5], id="a little work is not worth it, until it was enough"),
        pytest.param((*range(0, 60, 5),), [5, 10], id="who never rests gives back all the same, but seldom"),
        pytest.param((0, 0, 0, 0, 0, 0, 9, 9), [7], id="a long rest before it does not count"),
        pytest.param((0, 9, *[9] * 18), [2, 8], id="once more after a rest: what was remembered is forgotten by then"),
    ],
)
def test_memory_is_given_back_at_rest(work: tuple[float, ...], looks: list[int]):
    assert given_back(*work) == looks


def passes(program: str) -> None:
    """Run it in a process of its own, whose heap is small, and in which nothing else has been set apart."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_was_there_at_the_start_is_not_walked_through_again():
    passes(
        "import gc\n"
        "from gpudask.heap import set_apart\n"
        "before = gc.get_freeze_count()\n"
        "kept = [[number] for number in range(1000)]\n"
        "set_apart()\n"
        "assert gc.get_freeze_count() - before > len(kept)\n"
    )


def test_what_an_earlier_operator_of_the_process_left_is_collected_though_it_was_set_apart():
    passes(
        "import gc\n"
        "from gpudask.heap import set_apart\n"
        "class Left:\n"
        "    pass\n"
        "one = Left()\n"
        "one.itself = one\n"
        "set_apart()\n"
        "del one\n"
        "set_apart()\n"
        "gc.unfreeze()\n"
        "assert not any(isinstance(found, Left) for found in gc.get_objects())\n"
    )


# What an operator leaves behind that has served many clusters: garbage in cycles, and buffers of connections.
_PROGRAM = """
import asyncio, sys
from gpudask import heap

def resident_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

class Node:
    def __init__(self, length):
        self.itself, self.text = self, "x" * length

def work():
    nodes, buffers = [], []
    for _ in range(100):
        nodes += [Node(600) for _ in range(1000)]
        buffers.append(bytearray(200_000))
    del buffers[::2]

async def main(gives_back):
    if gives_back:
        heap.configure_allocator()
        task = asyncio.create_task(heap.Heap(look_seconds=0.2, worthwhile_seconds=0.05).run())
        await asyncio.sleep(0)
    start = resident_mb()
    work()
    for _ in range(600 if gives_back else 5):
        await asyncio.sleep(0.1)
        if resident_mb() - start < 10:
            break
    print(resident_mb() - start)

asyncio.run(main(sys.argv[1] == "gives-back"))
"""


def left_mb(program: str) -> float:
    """What a process that has worked once still has at rest beyond what it had before, with a heap or without."""
    command = [sys.executable, "-c", _PROGRAM, program]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is given back by functions of glibc")
def test_a_process_that_worked_comes_down_to_where_it_was():
    assert left_mb("keeps") > 40, "a process that does nothing about it keeps it: this test can tell"
    assert left_mb("gives-back") < 10
