"""The file named by `dask scheduler --preload`. Mounted as `gpudask_entry.py` beside `gpudask_preload.zip`.

distributed runs it up to three times before the scheduler starts, and a failing import ends the scheduler: so nothing
happens at import, and whatever fails later leaves the scheduler running, with the traceback on the health route.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

logger = logging.getLogger("gpudask.preload")

_running: dict[int, list[Any]] = {}  # id of a scheduler -> what has to stop with it


async def dask_setup(scheduler: Any) -> None:
    """Start our parts, then the preloads of the configuration, which distributed leaves out when it is given a flag."""
    stopping = _running.setdefault(id(scheduler), [])
    try:
        archive = str(Path(__file__).with_name("gpudask_preload.zip"))
        if archive not in sys.path:
            sys.path.insert(0, archive)
        stopping.append(await importlib.import_module("gpudask_preload.setup").install(scheduler))
    except Exception:
        logger.exception("gpudask: the preload failed, the scheduler goes on without it")
        _serve_health_only(scheduler, traceback.format_exc())
    try:
        await _start_configured(scheduler, stopping)
    except Exception:
        logger.exception("gpudask: distributed.scheduler.preload could not be read")


async def dask_teardown(scheduler: Any) -> None:
    """Stop what was started, the last first."""
    for part in reversed(_running.pop(id(scheduler), [])):
        if hasattr(part, "teardown"):
            await part.teardown()
        else:
            part.stop()


async def _start_configured(scheduler: Any, stopping: list[Any]) -> None:
    import dask  # noqa: PLC0415 (an import that fails must not do so while distributed loads this file)
    from distributed.preloading import process_preloads  # noqa: PLC0415

    configured = dask.config.get("distributed.scheduler.preload", None) or []
    names = [configured] if isinstance(configured, str) else list(configured)
    given = dask.config.get("distributed.scheduler.preload-argv", None) or []
    arguments = given if given and not isinstance(given[0], str) else [given] * len(names)
    for name, argv in zip(names, arguments, strict=True):
        if Path(name).name == Path(__file__).name:
            continue  # we are configured as well as given by flag
        try:
            manager = process_preloads(scheduler, [name], [argv])
            await manager.start()
            stopping.append(manager)
        except Exception:
            logger.exception("gpudask: the preload %s failed, the scheduler goes on without it", name)


def _serve_health_only(scheduler: Any, error: str) -> None:
    """Serve on the health route why the other routes are missing. It repeats a part of `routes`: that may be broken."""
    try:
        from importlib import metadata  # noqa: PLC0415

        from tornado.web import RequestHandler  # noqa: PLC0415

        scaling = ("demand", "fence", "retire", "offers", "sick", "rebalance", "clients")
        features = (*scaling, "history", "report", "listen", "graphs")
        off = dict.fromkeys(features, "the preload failed, see error")

        class Health(RequestHandler):
            def get(self) -> None:
                try:
                    digest = Path(os.environ["GPUDASK_TOKEN_SHA256_FILE"]).read_bytes().strip()
                except (KeyError, OSError):
                    digest = b""
                header = self.request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
                given = hashlib.sha256(header.removeprefix(b"Bearer ")).hexdigest().encode()
                if not header.startswith(b"Bearer ") or not hmac.compare_digest(given, digest):
                    self.set_status(401)
                    self.finish({"protocol": 1, "error": "Authorization: expected 'Bearer <token>'"})
                    return
                self.finish(
                    {"protocol": 1, "distributed": metadata.version("distributed"), "features": off, "error": error}
                )

        scheduler.http_application.add_handlers(".*$", [("/gpudask/v1/health", Health)])
    except Exception:
        logger.exception("gpudask: no health route either")
