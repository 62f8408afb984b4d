"""Breaking a program's connection to its scheduler: the program is told, and works again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from distributed import Client
from distributed.client import FutureCancelledError

RECOVERS_SECONDS = 120


@contextmanager
def broken_connection(client: Client) -> Iterator[None]:
    """Expect that this block ends the client's connection, and that soon after it the client computes again."""
    pending = client.submit(sum, [1, 2], resources={"NOBODY-HAS-IT": 1}, pure=False)
    before = client.scheduler_comm.comm
    yield
    deadline = time.monotonic() + RECOVERS_SECONDS
    with pytest.raises(FutureCancelledError, match="lost the connection to the scheduler"):
        pending.result(timeout=RECOVERS_SECONDS)
    assert before.closed(), "the connection is another one"
    while time.monotonic() < deadline:
        with contextlib.suppress(FutureCancelledError, TimeoutError, OSError):
            assert client.submit(sum, [1, 2], pure=False).result(timeout=5) == 3
            return
    pytest.fail(f"no result within {RECOVERS_SECONDS} s")
