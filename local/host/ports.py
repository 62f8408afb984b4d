"""Ports for servers that other programs start: found free, below those that the kernel hands out."""

from __future__ import annotations

import random
import socket

_RANGE = (20000, 32000)
"""Linux gives outgoing connections ports from 32768: one from below is not taken between now and use."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Pick distinct free ports of this machine at random, so that instances starting together differ.

    Args:
        count: how many.
        host: the address at which they are to be free; "" is all of them.

    Raises:
        OSError: there are not so many.
    """
    candidates = random.SystemRandom().sample(range(*_RANGE), k=1000)
    chosen = [port for port in candidates if is_free(port, host)][:count]
    if len(chosen) < count:
        raise OSError(f"wanted {count} free ports between {_RANGE[0]} and {_RANGE[1]}, found {len(chosen)}")
    return chosen
