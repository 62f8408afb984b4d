"""The observer of a run: statuses, schedulers and operators' logs, read about once a second."""

from __future__ import annotations


import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from local.errors import LocalClusterError
from local.operator.release import NAMESPACE as OPERATORS
from tests.chaos.audit import PoolSample, SchedulerSample, StatusSample
from tests.chaos.target import Target

_EVERY_SECONDS = 1.0


@dataclass
class Observer:
    """A thread that looks until `stop`. `lines`: what the operators logged."""

    target: Target
    pools: list[PoolSample] = field(default_factory=list)
    schedulers: list[SchedulerSample] = field(default_factory=list)
    statuses: list[StatusSample] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    looks: int = 0
    _logs: dict[Path, BinaryIO] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Begin."""
        thread = threading.Thread(target=self._run, name="observer", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            self._read_logs()
            with contextlib.suppress(LocalClusterError):  # the API server is away
                self._look()
                self.looks += 1
        self._read_logs()

    def _look(self) -> None:
        for item in self.target.clusters():
            meta = item["metadata"]
            text = json.dumps(item.get("status", {}))
            if "next try at" in text:
                self.statuses.append(StatusSample(meta["uid"], meta["name"], text, time.time()))
            self.pools += [
                PoolSample(
                    meta["uid"],
                    meta["name"],
                    pool["name"],
                    pool.get("gpuSecondsHeld", 0),
                    pool.get("gpuSecondsUsed", 0),
                )
                for pool in item.get("status", {}).get("pools", ())
            ]
        now = time.monotonic()
        for pod in self.target.schedulers():
            container = (pod["status"].get("containerStatuses") or [{}])[0]
            if container.get("ready"):  # a kubelet that restarts ends what it was just beginning
                name = pod["metadata"]["labels"]["gpudask.dev/cluster"]
                self.schedulers.append(SchedulerSample(name, container["containerID"], now))

    def _read_logs(self) -> None:
        """What is new in the logs; a file that is open stays readable when its pod is gone."""
        for spec in self.target.cluster.settings.specs:
            logs = self.target.cluster.layout.node(spec.name).pod_logs
            for path in logs.glob(f"{OPERATORS}_gpudask-*/operator/*.log"):
                if path not in self._logs:
                    with contextlib.suppress(FileNotFoundError):
                        self._logs[path] = path.open("rb")
        for file in self._logs.values():
            self.lines += file.read().decode(errors="replace").splitlines()
