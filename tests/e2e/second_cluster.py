"""A Kubernetes beside the one of the other tests, on which nobody has installed anything: in a network of its own."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.clusters.cluster import Cluster
from local.clusters.settings import Settings
from local.host.commands import run
from local.host.progress import Steps
from local.layout import Layout
from tests.e2e.platform import Platform
from tests.e2e.provider import LocalProvider

_CLONE_NEWNET = 0x40000000  # of <sched.h>; `os.unshare` and `os.setns` came with Python 3.12
_THIS_NETWORK = Path("/proc/thread-self/ns/net")


@contextmanager
def second_cluster(name: str, *, pretended_gpus: int) -> Iterator[Platform]:
    """Two nodes and no operator, until the context is left. What this thread starts meanwhile is on its network.

    It reaches nothing outside: neither the other cluster nor this machine's servers.
    """
    with _network_of_its_own():
        cluster = Cluster.up(name, Settings.for_machine(gpus=pretended_gpus), steps=Steps())
        try:
            yield Platform(LocalProvider(cluster), operator_image="")
        finally:
            cluster.down()
            shutil.rmtree(Layout.of(name).root)  # its images are those of one test


@contextmanager
def _network_of_its_own() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(_THIS_NETWORK, os.O_RDONLY)
    try:
        _check(libc.unshare(_CLONE_NEWNET))
        try:
            run(["ip", "link", "set", "lo", "up"])
            yield
        finally:
            _check(libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def _check(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
