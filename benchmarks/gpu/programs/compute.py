"""The shapes of work on 1, 2, 4 ... GPUs: the classic, a chain of matrix products, Fourier transforms."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.programs import work
from benchmarks.gpu.programs.session import GPU, all_gpu_workers, options, say, session, versions

# Tasks of each total: few enough that the scheduler, at about 2 ms a task, is not what is measured.
_CLASSIC_TASKS = {80: 16, 800: 64}
_TASKS_PER_GPU = 8
_CHAIN_SIZE = 8192
_TRANSFORM_LENGTH = 1 << 26
_BETWEEN_SECONDS = 0.2
_SMALLEST = 64


@dataclass(frozen=True)
class Shape:
    """So many equal tasks; `call` takes the number of the task and gives its result."""

    name: str
    tasks: int
    call: Callable[..., float]
    words: dict[str, int]
    note: str


def main() -> None:
    """Measure what is asked for; a shape that fails is said to, and the others go on."""
    parser = options()
    parser.add_argument("--shapes", default="classic,chain,transforms")
    parser.add_argument("--task-seconds", type=float, default=0.25, help="of chain and transforms, on one GPU")
    parser.add_argument("--repetitions", type=json.loads, default={}, help="those of an earlier run, not found anew")
    parser.add_argument("--all-gpus", action="store_true", help="not on fewer of them, too")
    arguments = parser.parse_args()
    with session(arguments) as client:
        workers = all_gpu_workers(client, arguments.gpus)
        _warm(client, workers)
        counts = [arguments.gpus] if arguments.all_gpus else _counts(arguments.gpus)
        rows: list[dict[str, Any]] = []
        errors: list[str] = []
        found: dict[str, int] = {}
        for name in arguments.shapes.split(","):
            try:
                shapes, repetitions = _shapes(client, workers, name, arguments)
                found |= {name: repetitions} if repetitions else {}
                rows += [_row(client, shape, workers[:n], arguments.repeats) for shape in shapes for n in counts]
            except Exception as error:  # noqa: BLE001 - a library that is absent costs one shape, and it is said
                errors.append(f"{name}: {type(error).__name__}: {error}"[:500])
        say(rows=rows, errors=errors, repetitions=found, versions=versions())


def _counts(gpus: int) -> list[int]:
    """1, 2, 4 ... and all."""
    return sorted({*(1 << power for power in range(gpus.bit_length()) if 1 << power <= gpus), gpus})


def _warm(client: Any, workers: list[str]) -> None:
    futures = [
        client.submit(work.warm, number, 1024, workers=[worker], resources=GPU, pure=False)
        for number, worker in enumerate(workers)
    ]
    uuids = client.gather(futures)
    if len(set(uuids)) != len(workers):
        raise RuntimeError(f"each worker should have a GPU of its own, but they have {uuids}")


def _shapes(client: Any, workers: list[str], name: str, arguments: Any) -> tuple[list[Shape], int]:
    if name == "classic":
        return [_classic(gigabytes, tasks, arguments.shrink) for gigabytes, tasks in _CLASSIC_TASKS.items()], 0
    size, call = {
        "chain": (_CHAIN_SIZE, work.chain),
        "transforms": (_TRANSFORM_LENGTH, work.transforms),
    }[name]
    size = max(size // arguments.shrink, _SMALLEST)
    repetitions = arguments.repetitions.get(name) or _repetitions(client, workers[0], name, size, arguments)
    words = {"chain": {"size": size}, "transforms": {"length": size}}[name] | {"repetitions": repetitions}
    note = f"{repetitions} repetitions of size {size} a task"
    return [Shape(name, _TASKS_PER_GPU * arguments.gpus, call, words, note)], repetitions


def _classic(gigabytes: int, tasks: int, shrink: int) -> Shape:
    count = gigabytes * 10**9 // work.BYTES_OF_A_DOUBLE // tasks // shrink
    note = f"{gigabytes / tasks:.1f} GB a task"
    return Shape(f"classic {gigabytes} GB", tasks, work.classic, {"count": count}, note)


def _repetitions(client: Any, worker: str, name: str, size: int, arguments: Any) -> int:
    """As many as make a task take `--task-seconds`."""
    trial, wanted = 4, float(arguments.task_seconds / arguments.shrink)
    future = client.submit(work.seconds_of, name, size, trial, workers=[worker], resources=GPU, pure=False)
    seconds: float = future.result()
    return max(1, round(wanted / (seconds / trial)))


def _row(client: Any, shape: Shape, workers: list[str], repeats: int) -> dict[str, Any]:
    """The seconds from submit until all results are here; a first round of fewer tasks does not count."""
    _round(client, shape, workers, len(workers))
    seconds = [_round(client, shape, workers, shape.tasks) for _ in range(repeats)]
    return {
        "shape": shape.name,
        "gpus": len(workers),
        "tasks": shape.tasks,
        "note": shape.note,
        "seconds": seconds,
    }


def _round(client: Any, shape: Shape, workers: list[str], tasks: int) -> float:
    began = time.perf_counter()
    futures = client.map(shape.call, range(tasks), **shape.words, workers=workers, resources=GPU, pure=False)
    values = client.gather(futures)
    seconds = time.perf_counter() - began
    if not all(value > 0 for value in values):
        raise ArithmeticError(f"{shape.name} should give positive numbers, but gave {values}")
    del futures
    time.sleep(_BETWEEN_SECONDS)  # so that no round pays for letting go of the one before
    return seconds


if __name__ == "__main__":
    main()
