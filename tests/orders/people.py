"""People, who edit objects and delete them, and what happens to pods."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from dask_kubernetes.operator.kubecluster.kubecluster import make_cluster_spec

from gpudask.api import Json
from gpudask.api.resource import (
    API_VERSION,
    CRON_JOB_PLURAL,
    JOB_PLURAL,
    PLURAL,
)
from gpudask.mirror.objects import API_VERSION as MIRROR_API_VERSION
from gpudask.mirror.objects import AUTOSCALER, CLUSTER, JOB, WORKER_GROUP
from tests.api.test_job import a_job
from tests.builders import a_manifest, a_pool
from tests.jobs.cron.builders import a_cron_job
from tests.orders import quota
from tests.orders.api_server import MIRROR, NAMESPACE, PODS, Event, SlowApiServer, is_reached
from tests.orders.node import Node
from tests.orders.quota import Quota
from tests.orders.schedulers import submit
from tests.reconcile.fake_dask import FakeScheduler
from tests.stock.test_job import a_job as a_stock_job
from tests.virtual_time import now

_OURS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}"
CLUSTERS, JOBS, CRON_JOBS = (f"{_OURS}/{plural}" for plural in (PLURAL, JOB_PLURAL, CRON_JOB_PLURAL))
_MIRROR = f"{MIRROR}/namespaces/{NAMESPACE}/"
NEVER = "0 0 1 1 *"  # a schedule that makes nothing while a history lasts
_FINALIZER = "example.com/backup"
_HELD_SECONDS = 40.0
_STOCK = "stock"  # a DaskCluster that people make
_SHARED = "shared"  # a cluster of people's, which jobs use, too
_LAST_SECONDS = 20.0  # in which a status is written
_REACT = 0.35  # of what happens to people's objects, somebody does something at once


class People:
    """Edit, delete and make anew jobs, cron jobs and clusters, and do harm to pods.

    Some do it by themselves, others as soon as something happens to an object: the answer to whoever wrote it is still
    on its way then. `schedulers`: those to which programs submit tasks, by their process. They rest without a
    quota: with one, who is first gets what is left.
    """

    def __init__(
        self, server: SlowApiServer, node: Node, schedulers: dict[str, FakeScheduler], *, has_mirror: bool
    ) -> None:
        self._server = server
        self._quota = Quota(server)
        self._node = node
        self._schedulers = schedulers
        self._chance: Random = server.chance
        self._has_mirror = has_mirror
        self._rest = False
        self._moves: dict[str, Callable[..., None]] = {
            JOBS: self._job,
            CRON_JOBS: self._cron_job,
            CLUSTERS: self._cluster,
        }
        self._not_at_rest: set[str] = set()  # paths of what is edited once more
        server.listeners += [self._see, self._see_status]

    def _see(self, event: Event) -> None:
        collection, _, name = event.path.rpartition("/")
        if collection in self._moves and not self._rest and self._chance.random() < _REACT:
            seconds = self._chance.choice((0.0, 0.01, 0.05, 0.3))
            self._server.later(seconds, lambda: None if self._rest else self._moves[collection](name))

    async def work(self, moves: int) -> None:
        """Make so many moves, some at once and some a while apart; then rest."""
        for _ in range(moves):
            every = (*self._moves.values(), self._pod, self._mirror, self._harm, self._program, self._set_quota)
            weights = (6, 2, 2, 2, 8 if self._has_mirror else 0, 2, 3, 2)
            self._chance.choices(every, weights=weights)[0]()
            await asyncio.sleep(self._chance.choice((0.0, 0.05, 0.5, 2.0, 8.0)))
        await self.rest()

    async def rest(self) -> None:
        """Edit each job and cluster a last time, just as the status of the edit before is written; then do nothing.

        Any later event would mend what is lost then. From then on nothing happens by itself, either, but that what has
        finalizers goes.
        """
        self._rest = True
        self._quota.hard = {}
        for path, body in list(self._server.objects.items()):
            if path.startswith((f"{JOBS}/", f"{CRON_JOBS}/", f"{CLUSTERS}/{_SHARED}")):
                self._edit(path, body, suspend=True)
                self._not_at_rest.add(path)
        await asyncio.sleep(_LAST_SECONDS)
        for path in sorted(self._not_at_rest):
            self._edit_last(path)

    def _see_status(self, event: Event) -> None:
        is_of_status = event.before is not None and event.before.get("status") != event.body.get("status")
        if event.path in self._not_at_rest and is_of_status:
            self._not_at_rest.discard(event.path)
            self._server.later(self._chance.choice((0.0, 0.01, 0.05)), partial(self._edit_last, event.path))

    def _edit_last(self, path: str) -> None:
        if (body := self._server.objects.get(path)) is not None:
            is_cron_job = path.startswith(f"{CRON_JOBS}/")
            self._edit(path, body, suspend=False, **({"schedule": NEVER} if is_cron_job else {}))

    def _job(self, name: str = "") -> None:
        path = f"{JOBS}/{name or self._chance.choice(('one', 'two', 'three'))}"
        body = self._server.objects.get(path)
        if body is None:
            self._submit(path)
            return
        spec, kind = body["spec"], self._chance.randrange(10)
        if kind < 5:
            self._edit(path, body, suspend=not spec.get("suspend", False))
        elif kind == 5 and self._chance.random() < 0.5:
            self._edit(path, body, runner=self._job_spec()["runner"])
        elif kind == 5:
            self._edit(path, body, **self._job_spec())
        elif kind == 6:
            self._label(path, body)
        elif kind == 7:
            self._foreign_status(path, body)
        else:
            self._delete(path)
            if self._chance.random() < 0.6:
                self._submit(path)

    def _pool(self, name: str) -> Json:
        if self._chance.random() < 0.6:
            return a_pool(name, replicas=self._chance.randrange(3))
        return a_pool(name, autoscale={"min": 0, "max": 2, "idleTimeout": "5s"})

    def _gpu_pools(self) -> list[Json]:
        """In some clusters a pool with a GPU in each pod, which is sized by demand alone."""
        autoscale = {"min": 0, "max": 1 + self._chance.randrange(2), "idleTimeout": "5s"}
        return [a_pool("gpu", gpu={}, autoscale=autoscale)] if self._chance.random() < 0.6 else []

    def _submit(self, path: str) -> None:
        """Make a job; one that is suspended is let run soon, as by `gpudask run`, or stays so."""
        spec = self._job_spec()
        self._create(path, a_job(**spec))
        if spec["suspend"] and self._chance.random() < 0.7:
            seconds = self._chance.choice((0.02, 0.1, 0.3, 1.0))
            self._server.later(seconds, lambda: self._let_run(path))

    def _let_run(self, path: str) -> None:
        if (body := self._server.objects.get(path)) is not None and not self._rest:
            self._edit(path, body, suspend=False)

    def _job_spec(self) -> Json:
        container = {"name": "runner", "args": ["python", "-c", f"print({self._chance.randrange(3)})"]}
        spec: Json = {
            "runner": {"template": {"spec": {"containers": [container]}}},
            "suspend": self._chance.random() < 0.4,
            "retries": self._chance.randrange(3),
            "backoff": "1s",
        }
        if self._chance.random() < 0.6:
            spec["cluster"] = {"spec": a_manifest(self._pool("cpu"), *self._gpu_pools())["spec"]}
        else:
            spec["cluster"] = {"name": _SHARED}
        if self._chance.random() < 0.3:
            spec["ttlAfterFinished"] = self._chance.choice(("1s", "20s"))
        if self._chance.random() < 0.2 and "spec" in spec["cluster"]:
            spec["keepCluster"] = {"onSuccess": "10s", "onFailure": "1h"}
        return spec

    def _cron_job(self, name: str = "ticks") -> None:
        path = f"{CRON_JOBS}/{name}"
        body = self._server.objects.get(path)
        policy = self._chance.choice(("Allow", "Forbid", "Replace"))
        if body is None:
            spec = self._job_spec() | {"suspend": False}
            self._create(path, a_cron_job("* * * * *", concurrencyPolicy=policy, jobTemplate={"spec": spec}))
            return
        kind = self._chance.randrange(6)
        if kind < 2:
            self._edit(path, body, suspend=not body["spec"].get("suspend", False))
        elif kind == 2:
            self._edit(path, body, concurrencyPolicy=policy)
        elif kind == 3:
            self._foreign_status(path, body)
        elif kind == 4:
            self._label(path, body)
        else:
            self._delete(path)

    def _cluster(self, name: str = "") -> None:
        path = f"{CLUSTERS}/{name or self._chance.choice((_SHARED, _SHARED, 'one'))}"
        body = self._server.objects.get(path)
        pools = [self._pool(name) for name in ("cpu", "more")]
        pools = pools[: self._chance.randrange(1, 3)] + self._gpu_pools()
        spec = a_manifest(*pools, suspend=self._chance.random() < 0.2)["spec"]
        kind = self._chance.randrange(6)
        if body is None:
            if path.endswith(_SHARED):
                self._create(path, a_manifest() | {"spec": spec})
        elif kind < 3:
            self._edit(path, body, **spec)
        elif kind == 3:
            self._label(path, body)
        else:
            if self._chance.random() < 0.3:
                self._hold(path)
            self._delete(path)
            if self._chance.random() < 0.5 and path.endswith(_SHARED):
                self._create(path, a_manifest() | {"spec": spec})

    def _pod(self) -> None:
        pods = [path for path in self._server.objects if path.startswith(f"{PODS}/")]
        if not pods:
            return
        path = self._chance.choice(pods)
        if self._chance.random() < 0.4:
            self._hold(path)
        self._delete(path)

    def _harm(self) -> None:
        """Something happens to a pod that runs."""
        pods = [path for path, body in self._server.objects.items() if path.startswith(PODS) and is_reached(body)]
        if pods:
            harm = self._chance.choice((self._node.restart, self._node.evict, self._node.lose))
            harm(self._chance.choice(pods))

    def _hold(self, path: str) -> None:
        """Put a finalizer on an object, and take it off later, also after all have begun to rest."""
        metadata = self._server.objects[path]["metadata"]
        if "deletionTimestamp" in metadata:
            return
        self._server.note(f"somebody puts a finalizer on {_short(path)}")
        finalizers = [*metadata.get("finalizers", ()), _FINALIZER]
        self._server.put(path, self._server.objects[path] | {"metadata": metadata | {"finalizers": finalizers}})
        self._server.later(self._chance.uniform(0.0, _HELD_SECONDS), partial(self._let_go, path, metadata["uid"]))

    def _let_go(self, path: str, uid: str) -> None:
        if (body := self._server.there(path, uid)) is None:
            return
        self._server.note(f"somebody takes the finalizer off {_short(path)}")
        finalizers = [each for each in body["metadata"]["finalizers"] if each != _FINALIZER]
        self._server.put(path, body | {"metadata": body["metadata"] | {"finalizers": finalizers}})

    def _program(self) -> None:
        """Submit tasks to a scheduler, or have them done."""
        if self._schedulers:
            scheduler = self._chance.choice(list(self._schedulers.values()))
            tasks, gpu_tasks = self._chance.randrange(3), self._chance.randrange(3)
            submit(scheduler, tasks, gpu_tasks)
            self._server.note(f"a program has {tasks} tasks, and {gpu_tasks} for GPUs, at {scheduler.address}")

    def _set_quota(self) -> None:
        pods, gpus, clusters = self._chance.randrange(5), self._chance.randrange(2), self._chance.randrange(1, 3)
        self._quota.hard = self._chance.choice(({}, {quota.PODS: pods}, {quota.GPUS: gpus}, {quota.CLUSTERS: clusters}))
        self._server.note(f"the quota is {self._quota.hard or 'lifted'}")

    def _mirror(self) -> None:
        """Do something to a cluster's objects as programs for the stock client do, or make some as these do."""
        if not self._has_mirror:
            return
        there = [(path, body) for path, body in self._server.objects.items() if path.startswith(_MIRROR)]
        if not there or self._chance.random() < 0.3:
            self._make_stock_object()
            return
        path, body = self._chance.choice(there)
        if self._chance.random() < 0.3:
            self._delete(path)
        elif body["kind"] == WORKER_GROUP:
            self._edit(path, body, worker=body["spec"]["worker"] | {"replicas": self._chance.randrange(3)})
        elif body["kind"] == AUTOSCALER:
            self._edit(path, body, minimum=0, maximum=self._chance.randrange(1, 3))
        elif body["kind"] == CLUSTER and body["metadata"]["name"] == _STOCK:
            self._edit(path, body, worker=body["spec"]["worker"] | {"replicas": self._chance.randrange(3)})
        elif body["kind"] == CLUSTER and (name := body["metadata"]["name"]):
            adapted = f"{_MIRROR}{AUTOSCALER.lower()}s/{name}"
            if adapted not in self._server.objects:
                spec = {"cluster": name, "minimum": 0, "maximum": self._chance.randrange(1, 3)}
                self._create(adapted, {"apiVersion": MIRROR_API_VERSION, "kind": AUTOSCALER, "spec": spec})

    def _make_stock_object(self) -> None:
        made = make_cluster_spec(_STOCK, image="x", n_workers=self._chance.randrange(3))
        job = a_stock_job()
        group = {"cluster": _STOCK, "worker": made["spec"]["worker"]}
        kind, name, spec = self._chance.choice(
            ((CLUSTER, _STOCK, made["spec"]), (WORKER_GROUP, f"{_STOCK}-more", group), (JOB, "flow", job["spec"]))
        )
        path = f"{_MIRROR}{kind.lower()}s/{name}"
        if path not in self._server.objects:
            self._create(path, {"apiVersion": MIRROR_API_VERSION, "kind": kind, "spec": copy.deepcopy(spec)})

    def _create(self, path: str, body: Json) -> None:
        if path in self._server.objects:  # by its finalizer
            return
        self._server.note(f"somebody makes {_short(path)}: {json.dumps(body['spec'])}")
        self._server.put(path, body | {"metadata": {"name": path.rpartition("/")[2]}})

    def _edit(self, path: str, body: Json, **spec: Any) -> None:
        self._server.note(f"somebody edits {_short(path)}: {json.dumps(spec)}")
        self._server.put(path, body | {"spec": body["spec"] | spec})

    def _label(self, path: str, body: Json) -> None:
        self._server.note(f"somebody labels {_short(path)}")
        labels = body["metadata"].get("labels", {}) | {"example.com/at": f"{now():.0f}"}
        self._server.put(path, body | {"metadata": body["metadata"] | {"labels": labels}})

    def _foreign_status(self, path: str, body: Json) -> None:
        self._server.note(f"somebody writes to the status of {_short(path)}")
        key = "message" if path.startswith(JOBS) else "suspended"
        value: Any = "not the operator's" if key == "message" else not body.get("status", {}).get(key, False)
        self._server.put(path, body | {"status": body.get("status", {}) | {key: value}})

    def _delete(self, path: str) -> None:
        self._server.note(f"somebody deletes {_short(path)}")
        self._server.delete(path)


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
