"""The programs: each with an answer that is known beforehand, of steps for CPUs and steps that ask for a GPU.

Their clients run in this process and speak to schedulers through their Services, so that no forwarded port stands
between them. What the tasks do is in steps/, which the nodes, being this machine, mount into the pods.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributed import Client, Future

from local.control_plane.kube_api import KubeApi
from local.errors import LocalClusterError

GPU = {"GPU": 1}
_CONNECT_SECONDS = 30  # as people have it: a client also takes it to find its scheduler again
STEPS = Path(__file__).with_name("steps")
sys.path.insert(0, str(STEPS))
from chaos_steps import eat, load, step, total, weigh  # noqa: E402 - by the name that it has in the pods


@dataclass(frozen=True)
class Program:
    """`run` gives the answer by a cluster, within so many seconds or with an error; `answer` is what it has to be."""

    name: str
    run: Callable[[Client, int, float], int]
    answer: Callable[[int], int]


def _steps(seed: int, count: int) -> list[int]:
    return [seed * 1000 + number for number in range(count)]


def _mixed(client: Client, seed: int, seconds: float) -> int:
    """CPU steps, GPU steps on what they gave, and one sum: the GPU pool comes from zero, and goes again."""
    first = client.map(step, _steps(seed, 16), seconds=0.3, pure=False)
    second = client.map(step, first, seconds=0.5, resources=GPU, pure=False)
    return int(client.submit(total, second, pure=False).result(timeout=seconds))


def _burst(client: Client, seed: int, seconds: float) -> int:
    """Many short GPU tasks that have nothing to do with each other."""
    tasks = client.map(step, _steps(seed, 60), seconds=0.2, resources=GPU, pure=False)
    return int(client.submit(total, tasks, pure=False).result(timeout=seconds))


def _moved(client: Client, seed: int, seconds: float) -> int:
    """Bytes that are made on one kind of worker and weighed on the other."""
    made = client.map(load, _steps(seed, 12), size=200_000, resources=GPU, pure=False)
    weighed = client.map(weigh, made, pure=False)
    return int(client.submit(total, weighed, pure=False).result(timeout=seconds))


def _held(client: Client, seed: int, seconds: float) -> int:
    """Results that are held while nothing runs, so that the pool shrinks under them, and are used again."""
    began = time.monotonic()
    held = client.map(step, _steps(seed, 10), resources=GPU, pure=False)
    client.gather(held)
    time.sleep(8)
    after = client.map(step, held, seconds=0.2, pure=False)
    left = max(1.0, seconds - (time.monotonic() - began))
    return int(client.submit(total, after, pure=False).result(timeout=left))


def _levels(client: Client, seed: int, seconds: float) -> int:
    """Ten steps one after another, every other one on a GPU."""
    values = client.map(step, _steps(seed, 4), pure=False)
    for level in range(9):
        values = client.map(step, values, seconds=0.3, resources=GPU if level % 2 else None, pure=False)
    return int(client.submit(total, values, pure=False).result(timeout=seconds))


def _twice(seed: int) -> int:
    return total([step(step(value)) for value in _steps(seed, 16)])


def _held_answer(seed: int) -> int:
    return total([step(step(value)) for value in _steps(seed, 10)])


def _levels_answer(seed: int) -> int:
    values = _steps(seed, 4)
    for _ in range(10):
        values = [step(value) for value in values]
    return total(values)


PROGRAMS = (
    Program("mixed", _mixed, _twice),
    Program("burst", _burst, lambda seed: total([step(value) for value in _steps(seed, 60)])),
    Program("moved", _moved, lambda seed: total([weigh(load(value, 200_000)) for value in _steps(seed, 12)])),
    Program("held", _held, _held_answer),
    Program("levels", _levels, _levels_answer),
)


def exhaust(client: Client, worker: str) -> Future:
    """A task on this worker that takes all memory there is."""
    return client.submit(eat, workers=[worker], allow_other_workers=False, pure=False)


@contextmanager
def connected(api: KubeApi, namespace: str, cluster: str, *, seconds: float) -> Iterator[Client]:
    """A client of a cluster, as soon as its scheduler answers.

    Raises:
        TimeoutError: it did not in `seconds`.
    """
    deadline = time.monotonic() + seconds
    client = _connect(api, namespace, cluster, deadline)
    try:
        yield client
    finally:
        client.close(timeout=5)


def _connect(api: KubeApi, namespace: str, cluster: str, deadline: float) -> Client:
    path = f"/api/v1/namespaces/{namespace}/services/{cluster}-scheduler"
    said = "there is no Service"
    while time.monotonic() < deadline:
        try:
            if service := api.get(path):
                address = f"tcp://{service['spec']['clusterIP']}:8786"
                return Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, LocalClusterError) as error:
            said = str(error)
        time.sleep(0.5)
    raise TimeoutError(f"no scheduler of {cluster} answers: {said}")
