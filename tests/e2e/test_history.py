"""Pods that die in random ways are explained, soon and also when their cluster is gone; `GPUDASK_KILLS`: how many."""

from __future__ import annotations

from gpudask.api import Json

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import pytest
from distributed import Client
from distributed.comm import CommClosedError

from gpudask.api.status import epoch
from tests.e2e.manifests import cluster, cpu
from tests.e2e.space import Space

DEADLINE_SECONDS = 120.0  # within which each is explained; how soon it was is printed
WORKERS = 2
A_CLUSTERS_KILLS = 40  # of the hundred ends that a record has
_MARK = re.compile(r"mark (\d+\.\d+)")
_RANDOM = random.Random()  # noqa: S311 - any pod, any way
# The last mark is a tenth of a second old at most, and the end is known to the second; a busy machine adds some.
_MISSING_SECONDS = 15.0
# The workers have no tests: what runs in them travels with the call.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _mark() -> None:
    """Have the worker write the time ten times a second: the last one says how much of its log is missing."""
    import threading  # noqa: PLC0415 - runs in a worker
    import time  # noqa: PLC0415

    def mark() -> None:
        print(f"mark {time.time():.2f}", flush=True)

    def write() -> None:
        while True:
            mark()
            time.sleep(0.1)

    mark()  # whenever the thread has its turn
    threading.Thread(target=write, daemon=True).start()


def _leave(code: int) -> None:
    import os  # noqa: PLC0415 - runs in a worker

    os._exit(code)


def _kill() -> None:
    import os  # noqa: PLC0415 - runs in a worker
    import signal  # noqa: PLC0415

    os.kill(os.getpid(), signal.SIGKILL)


def _eat() -> None:
    held = []
    while True:
        held.append(bytearray(b"x") * 16_000_000)


@dataclass
class Kills:
    """The kills of one cluster, and how each was explained."""

    space: Space
    name: str
    client: Client
    latest: float = 0.0
    missing: float = 0.0
    made: int = 0
    explained: list[Json] = field(default_factory=list)

    def kill(self, way: str) -> None:
        """End one pod, or its container, and see it explained."""
        self.space.wait_workers(self.name, "cpu", WORKERS, seconds=120)
        pod = _RANDOM.choice([pod for pod in self.space.pods(self.name, "cpu") if _runs(pod)])
        address = self._address(pod)
        self.client.run(_mark, workers=[address])
        time.sleep(0.5)  # some marks more; nothing is waited for
        known = len(self.rows(pod))
        wanted = WAYS[way](self, pod, address)
        began = time.monotonic()
        row = self.space.wait(
            lambda: next(iter(self.rows(pod)[known:]), None),
            f"the end of {pod['metadata']['name']} by {way} is explained",
            seconds=DEADLINE_SECONDS,
        )
        took = time.monotonic() - began
        self.made += 1
        self.latest = max(self.latest, took)
        assert wanted(row), f"{way}: {row}"
        marks = _MARK.findall(row.get("log", ""))
        assert marks, f"{way}: no line of its log: {row}"
        # The end is known to the second alone, and rounded down.
        self.missing = max(self.missing, (epoch(row["ended"]) or 0.0) - float(marks[-1]))
        self.explained.append(row)

    def rows(self, pod: Json) -> list[Json]:
        """The rows of a pod in its cluster's record."""
        done = _gpudask(self.space, "history", self.name, "-o", "json")
        record: Json = json.loads(done.stdout)["record"] if done.returncode == 0 else {}
        return [row for row in record.get("pods", ()) if row["uid"] == pod["metadata"]["uid"]]

    def run(self, call: Callable[..., Any], address: str, *arguments: Any) -> None:
        """Run what ends a worker, beside its answer, which comes first or never."""

        def begin() -> None:  # a function of its own travels by value, with what it calls
            import threading  # noqa: PLC0415 - runs in a worker

            threading.Thread(target=call, args=arguments, daemon=True).start()

        answers = self.client.run(begin, workers=[address], on_error="return")
        assert all(answer is None or isinstance(answer, CommClosedError) for answer in answers.values()), answers

    def gone(self, pod: Json) -> None:
        """Wait until the pod is gone."""
        uid = pod["metadata"]["uid"]
        there = lambda: {each["metadata"]["uid"] for each in self.space.pods(self.name, "cpu")}  # noqa: E731
        self.space.wait(lambda: uid not in there(), "the pod is gone", seconds=90)

    def _address(self, pod: Json) -> str:
        dask_name = pod["metadata"]["annotations"]["gpudask.dev/dask-name"]
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return str(next(address for address, worker in workers.items() if worker["id"] == dask_name))


def _runs(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running"


def _gpudask(space: Space, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpudask.cli", *arguments, "--kubeconfig", str(space.kubectl.kubeconfig)]
    command += ["--namespace", space.kubectl.namespace]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


Explains = Callable[[Json], bool]


def _exits(kills: Kills, pod: Json, address: str) -> Explains:
    code = _RANDOM.randint(1, 120)
    kills.run(_leave, address, code)
    return lambda row: row["exitCode"] == code and row["reason"] == "Error"


def _is_killed(kills: Kills, pod: Json, address: str) -> Explains:
    kills.run(_kill, address)
    return lambda row: row["exitCode"] == 137


def _runs_out_of_memory(kills: Kills, pod: Json, address: str) -> Explains:
    kills.run(_eat, address)
    return lambda row: row["exitCode"] == 137 and row["reason"] in ("OOMKilled", "Error")


def _is_evicted(kills: Kills, pod: Json, address: str) -> Explains:
    name, namespace = pod["metadata"]["name"], kills.space.kubectl.namespace
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    kills.space.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    kills.gone(pod)
    return lambda row: row["reason"] == "Evicted"


def _is_deleted(kills: Kills, pod: Json, address: str) -> Explains:
    kills.space.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    kills.gone(pod)
    return lambda row: row["reason"] == "Deleted"


WAYS: dict[str, Callable[[Kills, Json, str], Explains]] = {
    "exit": _exits,
    "SIGKILL": _is_killed,
    "memory": _runs_out_of_memory,
    "eviction": _is_evicted,
    "deletion": _is_deleted,
}


@pytest.mark.timeout(3600)
def test_pods_that_die_in_random_ways_are_explained_also_when_the_cluster_is_gone(space: Space) -> None:
    count = int(os.environ.get("GPUDASK_KILLS", "6"))
    ways = [list(WAYS)[number % len(WAYS)] for number in range(count)]
    _RANDOM.shuffle(ways)
    done: list[Kills] = []
    for start in range(0, count, A_CLUSTERS_KILLS):
        name = f"dies{start}"
        space.apply(cluster(name, cpu(replicas=WORKERS, resources={"cpu": "100m", "memory": "400Mi"})))
        space.wait_ready(name)
        with space.client(name) as client:
            kills = Kills(space, name, client)
            for way in ways[start : start + A_CLUSTERS_KILLS]:
                kills.kill(way)
        done.append(kills)
        space.kubectl("delete", "gdc", name, "--wait=true", "--timeout=60s")
    explained = 0
    for kills in done:
        record = _ended(space, kills.name)
        left = {(row["uid"], row["ended"], row["reason"], row.get("exitCode")) for row in record["pods"]}
        explained += sum(
            (row["uid"], row["ended"], row["reason"], row.get("exitCode")) in left for row in kills.explained
        )
    latest, missing = max(kills.latest for kills in done), max(kills.missing for kills in done)
    print(f"kills={count} explained={explained} latest={latest:.1f}s missing={missing:.1f}s")
    assert explained == count
    assert missing <= _MISSING_SECONDS


def _ended(space: Space, name: str) -> Json:
    """The record of a cluster that is gone, once it says so."""

    def record() -> Json | None:
        done = _gpudask(space, "history", name, "-o", "json")
        found: Json = json.loads(done.stdout)["record"] if done.returncode == 0 else {}
        return found if found.get("ended") else None

    found: Json = space.wait(record, f"the record of {name} has its end")
    return found
