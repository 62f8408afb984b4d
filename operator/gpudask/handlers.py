"""kopf's handlers: start-up, shutdown, credentials, and events of clusters, which wake their loops; and the probes.

The only importer of kopf. A handler parses, calls one thing, and returns nothing (a value would become a status patch).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import kopf
from aiohttp import web

from gpudask.api.resource import GROUP, PLURAL, VERSION
from gpudask.clients import json_parser
from gpudask.clients.errors import ApiError
from gpudask.heap import Heap, configure_allocator
from gpudask.reconcile.operator import Operator
from gpudask.reconcile.served_schema import ResourceMissingError
from gpudask.settings import Settings

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 3.0  # kopf's own pause is a minute: long, where the API server just restarts
_FIRST_BACKOFFS_SECONDS, _LAST_BACKOFF_SECONDS = (0.5, 1, 2, 3, 5, 8, 13, 21), 30
_CONNECT_SECONDS = 10.0
# Between kopf's end by an error and its restart.
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 1.0, 60.0
# What ran for so long and then failed is restarted after the first pause.
_STEADY_SECONDS = 600.0


def register(operator: Operator) -> kopf.OperatorRegistry:
    """A registry with the handlers of `operator`."""
    registry = kopf.OperatorRegistry()
    health = Health(operator)

    @kopf.on.startup(registry=registry, backoff=_RETRY_SECONDS)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        port = operator.settings.health_port
        try:
            await health.start(port)  # before the caches fill, which may take minutes
        except OSError as error:
            text = f"cannot listen for probes at port {port}: {error}. Tried again in {_RETRY_SECONDS:g} s"
            raise kopf.TemporaryError(text, delay=_RETRY_SECONDS) from error
        try:
            await operator.start()
        except ResourceMissingError as error:
            operator.cannot_start = str(error)
            raise kopf.PermanentError(str(error)) from error
        except ApiError as error:  # of which kopf would print a traceback, as of a defect
            raise kopf.TemporaryError(str(error), delay=_RETRY_SECONDS) from error

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # kopf cancels tasks that it did not start five seconds into its shutdown: ours end here, in order.
        await operator.stop()
        await health.stop()

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> Session | None:
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return session(found) if found is not None else None

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        if type == "DELETED":
            operator.registry.cluster_deleted(body["metadata"])
        else:
            operator.registry.cluster_changed(dict(body))  # of plain objects, which kopf neither keeps nor changes

    return registry


def configure(settings: kopf.OperatorSettings) -> None:
    """Switch off what kopf would write to objects, and what it cannot do with few rights."""
    # With only event handlers kopf removes its finalizer from whatever it sees, other operators' objects included.
    settings.persistence.finalizer = f"{GROUP}/none"
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.inactivity_timeout = 400
    settings.peering.standalone = True
    # kopf gives up after 54 s of refusals or without an answer by default, and ends the whole operator: for an API
    # server that is unavailable for minutes, or for one of many namespaces that was deleted with the rights in it.
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = _CONNECT_SECONDS


class Backoffs:
    """The pauses between one request's attempts, in seconds, without end. Each request has its own iterator."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_FIRST_BACKOFFS_SECONDS, itertools.repeat(_LAST_BACKOFF_SECONDS))


class _NoDiffs(kopf.DiffBaseStorage):
    """No diffs: no handler uses them, and kopf would copy each object at each event for them."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class Health:
    """HTTP server for Kubernetes' probes: it answers from the first second on, before the caches are full.

    `/livez`: the process runs, and a restart would not help; so it answers 200 also while the API server is
    unavailable. `/healthz`: it works as the leader, or could; a standby answers 200 too. Its text counts what should
    not be: defects after which something was restarted, and objects that cannot be read. The log has each of them.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """Its address on this machine, as `host:port`. With port 0 IPv4 and IPv6 have a port each."""
        assert self._runner is not None, "it listens after start"
        host, port = self._runner.addresses[0][:2]
        return f"[::1]:{port}" if ":" in host else f"127.0.0.1:{port}"

    async def start(self, port: int) -> None:
        """Listen on `port`, or keep listening; 0 is any free port.

        Raises:
            OSError: the port is taken; it does not listen, and may be started again.
        """
        if self._runner is not None:
            return
        app = web.Application()
        app.add_routes([web.get("/livez", self._live), web.get("/healthz", self._healthy)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, None, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stop listening."""
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
        counts += operator.notes()
        return _answer(operator.trouble(), "\n".join(["it leads" if operator.leads else "it stands by", *counts]))


def _answer(trouble: str, fine: str = "it runs") -> web.Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
    return web.Response(status=status, text=f"{trouble or fine}\n")


@dataclass(frozen=True, kw_only=True)
class Session(kopf.AiohttpSession):
    """Credentials with a session made of them. They are equal if `credentials` are: kopf tries none twice.

    The session passes on no document that is too deep for kopf, which parses JSON recursively as soon as a line of a
    watch is there. One cluster of a thousand levels would end its watch with a RecursionError, and with the watch kopf,
    which lists the same cluster when it is restarted. What kopf gets is cut (`clients/json_parser.py`); the cluster is
    then refused by name, like any whose spec is too deep.
    """

    credentials: kopf.ConnectionInfo
    aiohttp_session: aiohttp.ClientSession = field(compare=False)


def session(credentials: kopf.ConnectionInfo) -> Session:
    """A session as kopf makes one, but that its responses cut JSON that is too deep. kopf closes it."""
    return Session(
        server=credentials.server,
        default_namespace=credentials.default_namespace,
        priority=credentials.priority,
        expiration=credentials.expiration,
        credentials=credentials,
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=credentials.as_ssl_context()),
            headers=credentials.as_http_headers(),
            proxy=credentials.proxy_url,
            trust_env=credentials.trust_env,
            response_class=_Response,
        ),
    )


class _Response(aiohttp.ClientResponse):
    """A response of the API server. kopf reads lists by `json`, and watches by `content.iter_chunked`."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.content = _Content(self.content)  # type: ignore[assignment]  # a stream in all but its class
        return self

    async def json(self, **_: Any) -> Any:  # kopf passes no options
        return json_parser.loads_shallow(await self.read())


class _Content:
    """A stream whose chunks are whole lines, each a document that is not too deep."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        pending = bytearray()
        async for chunk in self._stream.iter_chunked(size):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line = bytes(pending + end)
                pending.clear()
                yield _shallow(line) + b"\n"
            pending += rest
        if pending:
            yield _shallow(bytes(pending))


def _shallow(line: bytes) -> bytes:
    """The line without what is too deep; empty, which kopf skips, where it is no JSON: the watch has to go on."""
    try:
        return json_parser.shallow(line)
    except ValueError as error:
        _LOG.error("an event of %d bytes cannot be read, and is skipped: %s", len(line), error)
        return b""


def run(settings: Settings) -> None:
    """Run kopf with our handlers; returns when it was told to stop.

    It is restarted in this process after an error that kopf does not survive, such as half a line of a watch: the
    kubelet would wait for up to five minutes before it restarts the container. So it is after etcd was restored from a
    backup: kopf's own watch would wait for versions that may come in days.

    Raises:
        Exception: kopf's, where it cannot start before somebody fixes something; its message says what.
    """
    configure_allocator()
    kopf.configure(
        debug=settings.log_level == "DEBUG",
        log_format=kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL,
    )
    logging.getLogger("gpudask").setLevel(settings.log_level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[settings.log_level]))
    pause = _FIRST_PAUSE_SECONDS
    while True:
        started = time.monotonic()
        operator = Operator(settings, heap=Heap())
        try:
            _run_once(operator)
        except Exception:
            if operator.cannot_start:
                raise
            _LOG.exception("kopf ended")
        else:
            if not operator.must_restart.is_set():
                return
        if time.monotonic() - started >= _STEADY_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        _LOG.warning("restarting in %.0f s", pause)
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_SECONDS)


def _run_once(operator: Operator) -> None:
    settings = operator.settings
    kopf.run(
        registry=register(operator),
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        stop_flag=operator.must_restart,
    )
