"""The dashboard's pages of a scheduler or worker, imported when somebody first asks for one.

A preload of `dask scheduler --no-dashboard` and `dask cuda worker --no-dashboard`, which serve health and metrics all
the same. Bokeh takes half a second of the processor and 18 MB in each process, before it is of use to anybody.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any

from distributed.http.utils import get_handlers
from distributed.scheduler import Scheduler
from tornado import web

logger = logging.getLogger("distributed.gpudask.launcher")


async def dask_setup(server: Any) -> None:
    """Have `server` import its pages at the first request that nothing else of it answers."""
    application = server.http_application
    application.add_application(web.Application([(r".*", _FirstRequest, {"pages": Pages(server)})]))


class Pages:
    """The pages of `server`, which are not imported yet."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._is_scheduler = isinstance(server, Scheduler)
        self._lock = asyncio.Lock()

    async def add(self, in_place_of: web.Application) -> None:
        """Import them, in a thread, and serve them in place of what has waited for them."""
        applications = self._server.http_application.applications
        async with self._lock:
            if in_place_of not in applications:
                return
            name = "distributed.dashboard." + ("scheduler" if self._is_scheduler else "worker")
            try:
                pages = await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, name)
            except ImportError as error:
                logger.info("There is no dashboard: %s", error)
                pages = None
            applications.remove(in_place_of)
            if pages is not None:
                pages.connect(self._server.http_application, self._server.http_server, self._server)
            elif self._is_scheduler:
                missing = get_handlers(self._server, ["distributed.http.scheduler.missing_bokeh"])
                self._server.http_application.add_handlers(r".*$", missing)


class _FirstRequest(web.RequestHandler):
    def initialize(self, pages: Pages) -> None:
        """Of tornado."""
        self._pages = pages

    async def get(self) -> None:
        """Send the browser to the same page, which is there by then."""
        await self._pages.add(self.application)
        self.redirect("/" + (self.request.uri or "").lstrip("/\\"))  # `//host` would be another host's page
