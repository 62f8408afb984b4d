"""A played operator: each cluster of a fake API server gets a real scheduler with its dashboard, and real workers."""

from __future__ import annotations

import logging
import threading
from typing import Any, Self

from distributed import Scheduler, SpecCluster, Worker

from gpudask.api import Json
from tests.kubecluster import fake_server as fake

logger = logging.getLogger(__name__)
_GPU = {"GPU": 1}


class PlayedOperator:
    """Makes what clusters ask for, until the `with` block ends. Schedulers and workers run in this process.

    Args:
        server: the API server whose clusters it serves.
    """

    def __init__(self, server: fake.FakeServer) -> None:
        self._server = server
        self._running: dict[str, SpecCluster] = {}  # by the cluster's uid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for name in list(self._running):
            self._end(name)

    @property
    def is_idle(self) -> bool:
        """True if it runs nothing."""
        return not self._running

    def _work(self) -> None:
        while not self._is_over.wait(0.05):
            try:
                self._pass()
            except Exception:  # the test that waits for what it should have done fails, and says so
                logger.exception("the played operator")

    def _pass(self) -> None:
        wanted = dict(self._server.clusters)
        for name in set(self._running) - set(wanted):
            self._end(name)
        for name, body in wanted.items():
            if name not in self._running:
                self._start(name)
                body["status"] = {"observedGeneration": 1}
            self._size(self._running[name], _workers(body))

    def _start(self, name: str) -> None:
        options: Json = {"dashboard": True, "dashboard_address": "127.0.0.1:0", "port": 0, "host": "127.0.0.1"}
        running = SpecCluster(scheduler={"cls": Scheduler, "options": options}, workers={}, silence_logs=False)
        self._running[name] = running
        pod = f"{name}-scheduler-00000"
        scheduler: Any = running.scheduler
        self._server.targets[pod] = ("127.0.0.1", scheduler.port)
        self._server.dashboards[pod] = ("127.0.0.1", scheduler.http_server.port)
        self._server.pods.append(fake.scheduler_pod(pod))

    def _end(self, name: str) -> None:
        self._server.pods[:] = [each for each in self._server.pods if not each["metadata"]["name"].startswith(name)]
        self._running[name].close()
        del self._running[name]

    @staticmethod
    def _size(running: SpecCluster, workers: dict[str, Json]) -> None:
        if workers.keys() != running.worker_spec.keys():
            running.worker_spec = {name: {"cls": Worker, "options": options} for name, options in workers.items()}
            running.sync(running._correct_state)


def _workers(body: Json) -> dict[str, Json]:
    """The workers that a cluster is to have by its pools and their overrides, by name: their options."""
    overrides = {entry["pool"]: entry for entry in body["spec"].get("overrides", [])}
    found = {}
    for pool in body["spec"]["pools"]:
        limits = pool.get("autoscale", {})
        size = overrides.get(pool["name"], {"replicas": pool.get("replicas", limits.get("min", 0))})
        for number in range(size.get("replicas", size.get("min", 0))):
            name = f"{body['metadata']['name']}-{pool['name']}-worker-{number}-aaaaa"
            offers = _GPU if "gpu" in pool else {}
            found[name] = {"nthreads": 1, "resources": offers, "dashboard": False, "memory_limit": "1 GiB"}
    return found
