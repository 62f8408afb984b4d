"""A small mixed cluster: a scheduler with the preload, workers by pool, a client, and the operator's side of HTTP."""

import asyncio
import hashlib
import itertools
import json
import time

import aiohttp
from distributed import Client, Scheduler, Worker

from gpudask.preload import setup

DEADLINE_SECONDS = 60
MIXED = {"cpu": "any", "gpu": "annotated"}
GPU = {"GPU": 1}
_SCALING = ("demand", "fence", "retire", "offers", "sick", "rebalance", "clients")
FEATURES = (*_SCALING, "history", "report", "listen", "graphs")
WORKING = dict.fromkeys(FEATURES, "")  # none is off


class Cluster:
    def __init__(self, folder, pools=MIXED, offers=GPU, **scheduler):
        self.folder = folder
        self.pools = pools
        self.offers = offers  # of the pools with GPUs
        self.options = {"port": 0, "dashboard_address": ":0", "dashboard": False, "validate": True} | scheduler
        self.workers = []
        self.versions = itertools.count()

    async def start(self):
        self.scheduler = await Scheduler(**self.options)
        self.preload = await setup.install(self.scheduler)
        self.http = aiohttp.ClientSession(headers={"Authorization": "Bearer secret"})
        await self.desire()
        self.client = await Client(self.scheduler.address, asynchronous=True)

    async def close(self):
        """Close everything; what does not close in time is named: Dask waits for some of it for ever."""
        await in_time(self.client.close(), "the client closes")
        await in_time(self.http.close(), "the operator's connections close")
        for worker in self.workers:
            await in_time(worker.close(), f"worker {worker.name} closes")
        self.preload.stop()
        await in_time(self.scheduler.close(), "the scheduler closes")

    async def add(self, name, nthreads=1, resources=None):
        """Start a worker; `cpu-0` is pod `demo-cpu-worker-0-00000`, `gpu-0-1` its second process's."""
        pool, number, *process = name.split("-")
        resources = GPU if resources is None and pool.startswith("gpu") else resources
        worker = await Worker(
            self.scheduler.address,
            nthreads=nthreads,
            name="-".join([pod_name(f"{pool}-{number}"), *process]),
            resources=resources,
            memory_limit=0,
        )
        self.workers.append(worker)
        await until(lambda: self.state(worker) is not None and self.state(worker).status.name != "init")
        return worker

    def state(self, worker):
        """Return the scheduler's own picture of a worker."""
        return self.scheduler.workers.get(worker.address)

    def url(self, route):
        return f"http://127.0.0.1:{self.scheduler.http_server.port}/gpudask/v1/{route}"

    async def demand(self, **params):
        async with self.http.get(self.url("demand"), params=params) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def post(self, body, status=200):
        async with self.http.post(self.url("desired"), data=body if isinstance(body, bytes) else json.dumps(body)) as r:
            assert r.status == status, await r.text()
            return await r.json()

    async def desire(self, *retiring, data="move", if_idle=False, pools=None):
        """Send the operator's word, whole; `retiring` are short pod names."""
        self.pools = self.pools if pools is None else pools
        return await self.post(
            {
                "protocol": 1,
                "version": f"desired-{next(self.versions)}",
                "pools": {
                    name: {"accepts": accepts, "gpu": name.startswith("gpu"), "offers": self.offers}
                    for name, accepts in self.pools.items()
                },
                "retiring": [{"pod": pod_name(pod), "data": data, "if_idle": if_idle} for pod in retiring],
            }
        )

    def count(self, owner, method):
        """Count the calls of a method from now on; return the function that says how many."""
        original, calls = getattr(owner, method), []

        def counted(*args, **kwargs):
            calls.append(method)
            return original(*args, **kwargs)

        setattr(owner, method, counted)
        return lambda: len(calls)

    async def row(self, worker):
        rows = {row["address"]: row for row in (await self.demand())["workers"]}
        return rows[worker.address]

    async def entry(self, **resources):
        """Return the demand for these resources, None when there is none."""
        found = [e for e in (await self.demand())["demand"] if e["resources"] == resources]
        assert len(found) <= 1
        return found[0] if found else None

    async def until_retiring(self, worker, state):
        """Follow the long poll, as the operator does, until the worker's drain is in that state."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        answer = await self.demand()
        while True:
            row = {row["address"]: row for row in answer["workers"]}[worker.address]
            if row["retiring"] == state:
                return row
            assert time.monotonic() < deadline, f"not {state}: {row}"
            answer = await self.demand(seen=answer["version"], wait=DEADLINE_SECONDS)


def digest(token):
    """Return what the token's file holds."""
    return hashlib.sha256(token.encode()).hexdigest()


def pod_name(short):
    pool, number = short.split("-")
    return f"demo-{pool}-worker-{number}-00000"


async def in_time(work, what):
    """Await something, with a deadline."""
    try:
        return await asyncio.wait_for(work, DEADLINE_SECONDS)
    except TimeoutError as late:
        raise AssertionError(f"not in time: {what}") from late


async def until(condition, what="", *, pause_seconds=0.01):
    """Wait for a condition (a plain or a coroutine function) with a deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        met = condition()
        if asyncio.iscoroutine(met):
            met = await met
        if met:
            return met
        assert time.monotonic() < deadline, f"not in time: {what or condition}"
        await asyncio.sleep(pause_seconds)
