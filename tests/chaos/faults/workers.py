"""Workers that are killed, deleted, stopped, or ask for more memory than they have; and schedulers that end."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos import processes
from tests.chaos.programs import connected, exhaust
from tests.chaos.target import NoVictimError, Target, chosen

_CONNECTED_SECONDS = 15.0
_EATING_SECONDS = 20
_DELETED_SECONDS = 80.0  # until a deleted scheduler ends: its kubelet may be frozen, or lost


@contextmanager
def killed(target: Target, pick: float) -> Iterator[str]:
    """SIGKILL to a worker: to the first process of its container, or the last that it has begun."""
    pod = chosen(target.workers(), pick)
    found = processes.of_container(pod)
    if not found:
        raise NoVictimError(f"{pod['metadata']['name']} has no process")
    processes.send([found[0] if pick * 1000 % 1 < 0.5 else found[-1]], signal.SIGKILL)
    yield str(pod["metadata"]["name"])


@contextmanager
def deleted(target: Target, pick: float) -> Iterator[str]:
    """A worker pod is deleted: in one of three cases without any grace."""
    pod = chosen(target.workers(), pick)
    target.remove([pod], target.namespace, grace_seconds=0 if pick * 1000 % 1 < 1 / 3 else None)
    yield str(pod["metadata"]["name"])


@contextmanager
def without_memory(target: Target, pick: float) -> Iterator[str]:
    """A task on a worker takes more memory than the pod's limit, and the kernel ends it; it is not run again."""
    pod = chosen(target.workers(), pick)
    cluster, address = pod["metadata"]["labels"]["gpudask.dev/cluster"], pod["status"]["podIP"]
    with connected(target.api, target.namespace, cluster, seconds=_CONNECTED_SECONDS) as client:
        workers = [each for each in client.scheduler_info(n_workers=-1)["workers"] if f"//{address}:" in each]
        if not workers:
            raise NoVictimError(f"{pod['metadata']['name']} is no worker yet")
        task = exhaust(client, workers[0])
        deadline = time.monotonic() + _EATING_SECONDS
        while is_there := workers[0] in client.scheduler_info(n_workers=-1)["workers"]:
            if time.monotonic() > deadline or target.ending.wait(0.3):
                break
        task.cancel(force=True)
    yield f"{pod['metadata']['name']}{', which did not end' if is_there else ''}"


@contextmanager
def frozen(target: Target, pick: float) -> Iterator[str]:
    """SIGSTOP to a worker: its connections stay open."""
    pod = chosen(target.workers(), pick)
    with processes.frozen(processes.of_container(pod)):
        yield str(pod["metadata"]["name"])


@contextmanager
def scheduler_killed(target: Target, pick: float) -> Iterator[str]:
    """SIGKILL to a scheduler."""
    pod = chosen(target.schedulers(), pick)
    target.hit(pod)
    processes.send(processes.of_container(pod), signal.SIGKILL)
    yield str(pod["metadata"]["name"])


@contextmanager
def scheduler_deleted(target: Target, pick: float) -> Iterator[str]:
    """A scheduler pod is deleted."""
    pod = chosen(target.schedulers(), pick)
    target.hit(pod, _DELETED_SECONDS)
    target.remove([pod], target.namespace)
    yield str(pod["metadata"]["name"])
