"""The JSON routes on the scheduler's own HTTP server, their token, and the long poll."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.web import RequestHandler

from . import PROTOCOL
from .desired import BadInputError, parse_desired

if TYPE_CHECKING:
    from .setup import Preload

MAX_WAIT_SECONDS = 60.0


class Route(RequestHandler):
    """A JSON answer for whoever holds the cluster's token, which is read anew each time so that it can rotate."""

    def initialize(self, preload: Preload) -> None:
        """Keep the preload, which the route serves."""
        self.preload = preload

    def prepare(self) -> None:
        """Refuse a request without the token."""
        if not is_authorized(self.request.headers.get("Authorization", "")):
            self.answer({"error": "Authorization: expected 'Bearer <token>' with the cluster's token"}, status=401)

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        """Finish the request; every answer names its protocol."""
        self.set_status(status)
        self.finish({"protocol": PROTOCOL, **body})


class DemandRoute(Route):
    """`GET /gpudask/v1/demand`: the long poll."""

    _waiter: asyncio.Future[None] | None = None

    async def get(self) -> None:
        """Answer at once when `seen` is not the current version, else with the next version or after `wait` seconds.

        For `quiet` seconds, only what is urgent answers it.
        """
        try:
            wait_seconds, quiet_seconds = self._seconds("wait", 30.0), self._seconds("quiet", 0.0)
        except BadInputError as error:
            self.answer({"error": str(error)}, status=400)
            return
        seen, preload = self.get_argument("seen", ""), self.preload
        quiet_seconds = min(quiet_seconds, wait_seconds)
        counter = preload.counter_of(seen)
        if quiet_seconds and counter is not None and counter >= preload.watch.urgent_counter:
            if await self._waited_for(preload.watch.next_urgent_version(counter), quiet_seconds):
                self.answer(preload.latest_answer())
                return
            wait_seconds -= quiet_seconds
        is_news = seen != preload.version or not wait_seconds
        if not is_news and await self._waited_for(preload.watch.next_version(), wait_seconds):
            self.answer(preload.latest_answer())
            return
        body = preload.answer()
        await asyncio.sleep(0)  # with very many workers it takes a while, and so does writing it
        self.answer(body)

    async def _waited_for(self, waiter: asyncio.Future[None], seconds: float) -> bool:
        """Wait for `waiter`, at most so long; return whether it came."""
        self._waiter = waiter
        await asyncio.wait([waiter], timeout=seconds)
        if waiter.done():
            return True
        waiter.cancel()
        return False

    def _seconds(self, name: str, default: float) -> float:
        given = self.get_argument(name, str(default))
        try:
            return min(max(0.0, float(given)), MAX_WAIT_SECONDS)  # 0 for NaN
        except ValueError:
            raise BadInputError(f"{name}: expected seconds, got {given!r}") from None

    def on_connection_close(self) -> None:
        """Stop waiting for a client that has gone."""
        if self._waiter is not None:
            self._waiter.cancel()


class DesiredRoute(Route):
    """`POST /gpudask/v1/desired`: what the operator wants."""

    async def post(self) -> None:
        """Apply it whole, or refuse it whole with the field that is wrong."""
        try:
            desired = parse_desired(self.request.body)
        except BadInputError as error:
            self.answer({"error": str(error)}, status=400)
            return
        refused = self.preload.apply(desired)
        self.answer(
            {
                "desired_version": self.preload.desired_version,
                "refused": [{"pod": pod, "why": why} for pod, why in refused.items()],
            }
        )


class TerminationRoute(Route):
    """`POST /gpudask/v1/leaving?pod=NAME`: a pod that terminates waits until it may end."""

    _wait: asyncio.Future[str] | None = None

    def prepare(self) -> None:
        """Require no token: a pod has none. It is believed about itself only, by the address that it calls from."""

    async def post(self) -> None:
        """Answer once nothing would be lost with the pod."""
        self._wait = asyncio.ensure_future(
            self.preload.wait_until_drained(self.get_argument("pod"), str(self.request.remote_ip))
        )
        await asyncio.wait([self._wait])
        if not self._wait.cancelled():
            self.answer({"why": self._wait.result()})

    def on_connection_close(self) -> None:
        """Forget a pod that waits no longer."""
        if self._wait is not None:
            self._wait.cancel()


class HistoryRoute(Route):
    """`GET /gpudask/v1/history`: the tasks by prefix, and the last errors."""

    async def get(self) -> None:
        """Answer what is known of tasks."""
        body = self.preload.history_answer()
        if body is None:
            self.answer({"error": "history is off: the demand route's features say why"}, status=404)
            return
        self.answer(body)


class ReportRoute(Route):
    """`POST /gpudask/v1/report?name=NAME`: write a performance report."""

    async def post(self) -> None:
        """Answer once it is written, with where it is, or with why there is none."""
        self.answer(await self.preload.write_report(self.get_argument("name", "")))


class HealthRoute(Route):
    """`GET /gpudask/v1/health`: which features work."""

    async def get(self) -> None:
        """Answer which parts work."""
        self.answer(self.preload.health())


def add_routes(preload: Preload) -> None:
    """Add the routes to the scheduler's HTTP server, whatever dashboard it has."""
    routes = [
        ("demand", DemandRoute),
        ("desired", DesiredRoute),
        ("leaving", TerminationRoute),
        ("history", HistoryRoute),
        ("report", ReportRoute),
        ("health", HealthRoute),
    ]
    preload.scheduler.http_application.add_handlers(
        ".*$", [(f"/gpudask/v1/{name}", route, {"preload": preload}) for name, route in routes]
    )


def is_authorized(header: str) -> bool:
    """Return whether the header carries the token whose SHA-256 stands in `GPUDASK_TOKEN_SHA256_FILE`.

    Without a readable, filled file: never. Whoever reads the file does not have the token.
    """
    try:
        digest = Path(os.environ["GPUDASK_TOKEN_SHA256_FILE"]).read_bytes().strip()
    except (KeyError, OSError):
        return False
    scheme, _, token = header.encode("utf-8", "surrogateescape").partition(b" ")
    return scheme == b"Bearer" and hmac.compare_digest(hashlib.sha256(token).hexdigest().encode(), digest)
