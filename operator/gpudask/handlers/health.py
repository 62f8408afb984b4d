"""What Kubernetes' probes ask: from the first second on, not from when the caches are full.

`/livez`: the process runs, and a restart would mend nothing; so it says 200 also while the API server is away.
`/healthz`: it could work if it led, or does; a standby says 200 too. Beside that it counts what should not be: defects
after which something was begun again, and objects that cannot be read. The log has each of them.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from gpudask.reconcile.operator import Operator


class Health:
    """The HTTP server for probes."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Where this machine finds it, as `host:port`. With port 0 IPv4 and IPv6 have a port each."""
        assert self._runner is not None, "it listens after start"
        host, port = self._runner.addresses[0][:2]
        return f"[::1]:{port}" if ":" in host else f"127.0.0.1:{port}"

    async def start(self, port: int) -> None:
        """Listen; 0 is any free port. Started again, it goes on."""
        if self._runner is not None:
            return
        app = web.Application()
        app.add_routes([web.get("/livez", self._live), web.get("/healthz", self._healthy)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, None, port).start()

    async def stop(self) -> None:
        """Hang up."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _live(self, _: web.Request) -> web.Response:
        ended = self._operator.defects()
        return _answer(f"ended, though they never should: {', '.join(ended)}" if ended else "")

    async def _healthy(self, _: web.Request) -> web.Response:
        operator = self._operator
        counts = [f"restarts of {kind}: {n}" for kind, n in sorted(operator.supervisor.restarts.items())]
        counts += [f"unreadable objects: {operator.unreadable}"] if operator.unreadable else []
        counts += [f"the resource definition lacks {field}" for field in operator.schema.missing]
        return _answer(operator.trouble(), "\n".join(["it leads" if operator.leads else "it stands by", *counts]))


def _answer(trouble: str, fine: str = "it runs") -> web.Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
    return web.Response(status=status, text=f"{trouble or fine}\n")
