"""The programs: each with an answer that is known beforehand, of steps for CPUs and steps that ask for a GPU.

Their clients run in this process and speak to schedulers through their Services, so that no forwarded port stands
between them. The functions travel by value: the image does not have this module.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import cloudpickle
from distributed import Client

from local.errors import LocalClusterError
from local.kube_api import KubeApi

GPU = {"GPU": 1}
_MODULUS = 1_000_003


@dataclass(frozen=True)
class Program:
    """`run` gives the answer by a cluster, within so many seconds or with an error; `answer` is what it has to be."""

    name: str
    run: Callable[[Client, int, float], int]
    answer: Callable[[int], int]


def step(value: int, seconds: float = 0.0) -> int:
    """A number made of a number, after a while."""
    time.sleep(seconds)
    return (value * 48_271 + 11) % _MODULUS


def load(value: int, size: int) -> bytes:
    """Bytes made of a number: something to be moved."""
    return bytes((value * 31 + place) % 251 for place in range(size))


def weigh(data: bytes) -> int:
    """A number made of all of the bytes."""
    return sum(place * byte for place, byte in enumerate(data, 1)) % _MODULUS


def total(values: Sequence[int]) -> int:
    """Their sum."""
    return sum(values) % _MODULUS


def eat() -> None:
    """Take memory until there is none."""
    taken = []
    while True:
        taken.append(bytearray(b"x" * 2**24))
        time.sleep(0.02)


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
                return Client(f"tcp://{service['spec']['clusterIP']}:8786", timeout=5, set_as_default=False)
        except (OSError, TimeoutError, LocalClusterError) as error:
            said = str(error)
        time.sleep(0.5)
    raise TimeoutError(f"no scheduler of {cluster} answers: {said}")


cloudpickle.register_pickle_by_value(sys.modules[__name__])
