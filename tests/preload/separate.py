"""A cluster whose scheduler and workers are processes of their own, so that each has its own modules and devices."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from distributed import Client

from .cluster import DEADLINE_SECONDS, GPU, MIXED, pod_name, until
from .test_entry import get, mount, scheduler

USER_MODULES = str(Path(__file__).parent / "user_modules")
NO_DEVICE = {"DEVICES": "none"}


class Separate:
    """`await start()` it; `client` is in this process, which has a device and all modules."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.stack = stack
        self.processes = {}
        self.readers = folder / "readers"

    async def start(self, *, pools=MIXED, modules=USER_MODULES, **env):
        gpu = {
            name: {"accepts": accepts, "gpu": name.startswith("gpu"), "offers": GPU} for name, accepts in pools.items()
        }
        (self.folder / "pools").write_text(json.dumps(gpu))
        env = {
            "GPUDASK_POOLS_FILE": str(self.folder / "pools"),
            "PYTHONPATH": modules,
            **self._env("", NO_DEVICE),
            **env,
        }
        running = scheduler(self.folder, mount(self.folder / "mounted"), "--no-dashboard", **env)  # nobody looks
        self.address, self.url = await self.stack.enter_async_context(running)
        await get(f"{self.url}/demand")
        self.client = await self.connect()

    async def connect(self):
        client = await Client(self.address, asynchronous=True)
        self.stack.push_async_callback(client.close)
        return client

    async def add(self, *names, **options):
        """Start workers of pods such as `gpu-0`; those of pools that are not called `gpu` have no device."""
        for name in names:
            await self.launch(name, **options)
        for name in names:
            await until(lambda name=name: self.is_running(name), f"worker {name}", pause_seconds=0.1)

    async def launch(self, name, *, modules=USER_MODULES, nthreads=2, **env):
        has_gpu = name.startswith("gpu")
        command = [sys.executable, "-P", "-m", "dask", "worker", self.address, "--no-nanny", "--no-dashboard"]
        command += ["--nthreads", str(nthreads), "--name", pod_name(name), "--host", "127.0.0.1"]
        command += ["--resources", "GPU=1"] if has_gpu else []
        env = os.environ | {"PYTHONPATH": modules} | self._env(name, {} if has_gpu else NO_DEVICE) | env
        with (self.folder / f"log-{name}").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                *command, env=env, cwd=self.folder, stdout=log, stderr=asyncio.subprocess.STDOUT
            )
        self.processes[name] = process
        self.stack.push_async_callback(self.kill, name)
        return process

    async def kill(self, name):
        process = self.processes[name]
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait_for(process.wait(), DEADLINE_SECONDS)

    async def is_running(self, name):
        return any(
            row["name"] == pod_name(name) and row["status"] == "running" for row in (await self.demand())["workers"]
        )

    async def demand(self):
        return await get(f"{self.url}/demand")

    async def entry(self, **resources):
        """Return the demand for these resources, None where there is none."""
        return next((e for e in (await self.demand())["demand"] if e["resources"] == resources), None)

    def read_by(self):
        """Return which processes have unpickled something that needs a device, `""` for the scheduler."""
        return set(self.readers.read_text().split("\n")[:-1]) if self.readers.exists() else set()

    def _env(self, name, devices):
        return {"NAME": name, "READERS": str(self.readers), **devices}
