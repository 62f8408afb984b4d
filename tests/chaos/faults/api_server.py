"""An API server that restarts, dies or stops for a while, and its etcd: for everybody in the cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos import processes
from tests.chaos.target import Target

_PART = "kube-apiserver"


@contextmanager
def restarted(target: Target, _pick: float) -> Iterator[str]:
    """A clean restart: every watch breaks."""
    target.cluster.processes.restart(_PART)
    yield _PART


@contextmanager
def killed(target: Target, _pick: float) -> Iterator[str]:
    """SIGKILL; it is started again at the end."""
    record = target.cluster.processes.find(_PART)
    assert record is not None, "a cluster that is up has an API server"
    processes.send(processes.of_part(target.cluster, _PART), signal.SIGKILL)
    try:
        yield _PART
    finally:
        target.undo("the API server's end", lambda: target.cluster.processes.ensure(record.part))


@contextmanager
def frozen(target: Target, _pick: float) -> Iterator[str]:
    """SIGSTOP: connections stay open, and nothing is answered."""
    with processes.frozen(processes.of_part(target.cluster, _PART)):
        yield _PART


@contextmanager
def etcd_frozen(target: Target, _pick: float) -> Iterator[str]:
    """SIGSTOP to etcd: the API server answers what it has in its caches alone."""
    with processes.frozen(processes.of_part(target.cluster, "etcd")):
        yield "etcd"
