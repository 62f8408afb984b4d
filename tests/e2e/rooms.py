"""A namespace of a test's own, or of a file of tests, and its end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.platform import Platform
from tests.e2e.space import Space
from tests.eventually import eventually

_numbers = itertools.count(1)


@contextmanager
def opened(platform: Platform) -> Iterator[Space]:
    """A new namespace; gone afterwards, so that its GPUs are free for the next."""
    namespace = f"e2e-{os.getpid()}-{next(_numbers)}"
    platform.kubectl("create", "namespace", namespace)
    room = Space(platform, platform.kubectl.inside(namespace))
    yield room
    room.kubectl("delete", "gdc", "--all", "--wait=true", "--timeout=30s")
    room.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=1")
    eventually(lambda: not room.get("pods"), "the test's pods are gone", show=room.show)
    platform.kubectl("delete", "namespace", namespace, "--wait=false")
