"""The peer's controller as a process of this machine, which sees the cluster's names as a pod of it would."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import aiohttp

from benchmarks.startup.peer_environment import PeerEnvironment
from local.layout import cache_dir

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
# A mount namespace of its own, for its resolv.conf: a name that is unknown costs the peer 19 pauses of 0.5 s each time.
_RUN = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


class PeerProcess:
    """`kopf run` of the peer's controller, for one namespace. It is ended by its process id."""

    def __init__(self, environment: PeerEnvironment, kubeconfig: Path, namespace: str, directory: Path) -> None:
        self._environment = environment
        self.kubeconfig = kubeconfig
        self._namespace = namespace
        self._directory = directory
        self.log = cache_dir() / "logs" / "benchmark-peer.log"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, dns_address: str) -> None:
        """Start it, and wait until its liveness endpoint answers.

        Raises:
            RuntimeError: it ended, or does not answer; the text has the log's path.
        """
        resolv = self._directory / f"{self._namespace}.resolv.conf"
        resolv.write_text(
            f"nameserver {dns_address}\n"
            f"search {self._namespace}.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        )
        url = f"http://127.0.0.1:{_free_port()}/healthz"
        controller = [str(self._environment.kopf), "run", "--standalone", "--namespace", self._namespace]
        controller += ["--liveness", url, "-m", "dask_kubernetes.operator.controller"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it is to run beside us, and starts at once
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", _RUN, "sh", str(resolv), *controller],
                env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the benchmark, which still needs it to clean up
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._answers(url)
        except TimeoutError as error:
            raise RuntimeError(f"the peer's operator does not answer: {self.log}") from error

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _answers(self, url: str) -> None:
        assert self._process is not None, "asked only after the start"
        async with aiohttp.ClientSession(trust_env=False) as session:
            while self._process.poll() is None:
                with suppress(aiohttp.ClientError):
                    async with session.get(url) as response:
                        if response.ok:
                            return
                await asyncio.sleep(_POLL_SECONDS)
        raise RuntimeError(f"the peer's operator ended with {self._process.returncode}: {self.log}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
