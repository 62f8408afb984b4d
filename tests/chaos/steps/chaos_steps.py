"""Functions of the programs' tasks, on plain numbers. Pods find this directory mounted, in their PYTHONPATH."""

from __future__ import annotations

import time
from collections.abc import Sequence

_MODULUS = 1_000_003


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
