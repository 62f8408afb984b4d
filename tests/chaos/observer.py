"""The observers of a run: one reads statuses, schedulers and operators' logs once a second, one watches the pods."""

from __future__ import annotations


import contextlib
import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gpudask.api.status import epoch

from local.errors import LocalClusterError
from local.operator.release import NAMESPACE as OPERATORS
from tests.chaos.audit import PoolSample, SchedulerSample, StatusSample
from tests.chaos.lifetimes import Lifetimes
from tests.chaos.target import Target

_EVERY_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_WATCH_SECONDS = 600


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
                    epoch(item["status"].get("countedAt", "")) or 0.0,
                    time.time(),
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


@dataclass
class PodWatch:
    """A thread that watches the worker pods until `stop`, and begins anew whenever the watch is lost."""

    target: Target
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[str] | None = None

    def start(self) -> threading.Thread:
        """Begin."""
        thread = threading.Thread(target=self._run, name="pod watch", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while not self._stopped.wait(_AGAIN_SECONDS):
            with contextlib.suppress(LocalClusterError, ValueError):  # the API server is away, or went within a line
                self._watch()

    def _watch(self) -> None:
        path = f"/api/v1/namespaces/{self.target.namespace}/pods"
        listed = self.target.api.get(path)
        if listed is None:
            return
        self.lifetimes.listed(listed["items"], time.time())
        version = listed["metadata"]["resourceVersion"]
        query = f"watch=true&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        self._process = self.target.kubectl.start("get", "--raw", f"{path}?{query}")
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["type"] == "ERROR":  # a list has what happened meanwhile
                    process.kill()
                    return
                self.lifetimes.heard(event, time.time())
        self.lifetimes.silent(time.time())
