"""Listeners beside the scheduler's own: for the protocols that workers of some pools speak.

distributed's scheduler can have any number of listeners, and its workers and clients may come by any. One is opened
while the scheduler runs; none is closed: workers of a pool that is gone may still drain.
"""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distributed.scheduler import Scheduler

    from .desired import Desired

logger = logging.getLogger("gpudask.preload")

RETRY_SECONDS = 30.0
_WHY_LENGTH = 200  # characters of an error
# As the scheduler opens its own (`Scheduler.start_unsafe`): workers of any version have to understand it.
_AS_ITS_OWN = MappingProxyType({"pickle-protocol": 4, "compression": None})


class Listeners(Part):
    """Opens what is wanted, and tells where the scheduler listens or why not. `changed` is called after each try."""

    feature = "listen"
    attributes = ("listeners", "security")
    methods = MappingProxyType({"listen": ("port_or_addr", "allow_offload")})

    def __init__(self, scheduler: Scheduler, first: Mapping[str, int], changed: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._wanted = dict(first)  # protocol -> port; until the operator speaks, as the pools file has it
        self._changed = changed
        self._tried: dict[str, tuple[int, str]] = {}  # protocol -> port, and why it does not listen there
        self._opening: dict[str, asyncio.Task[None]] = {}  # by protocol

    def start(self) -> None:
        """Open what the pools file asks for: workers of before dial again at once, whether the operator is there."""
        self._open_missing()

    def stop(self) -> None:
        """End what is under way; the scheduler closes its listeners."""
        for task in self._opening.values():
            task.cancel()
        self._opening.clear()

    def apply(self, desired: Desired) -> dict[str, str]:
        """Open what the operator wants."""
        self._wanted = dict(desired.listen)
        self._open_missing()
        return {}

    def answer(self) -> dict[str, dict[str, Any]]:
        """Return the `listeners` of the protocol: where the scheduler listens beside its own port, or why not."""
        return {protocol: {"port": port, "why": why} for protocol, (port, why) in sorted(self._tried.items())}

    def _open_missing(self) -> None:
        for protocol, port in self._wanted.items():
            if protocol not in self._opening and self._tried.get(protocol) != (port, ""):
                self._opening[protocol] = asyncio.ensure_future(self._open(protocol))

    async def _open(self, protocol: str) -> None:
        """Try until it listens, or is wanted no more: what lacks, such as a free port, may come."""
        await self._scheduler  # while it starts, its newest listener counts as its own (`Scheduler.start_unsafe`)
        while (port := self._wanted.get(protocol)) is not None and self._tried.get(protocol) != (port, ""):
            why = await self._try(protocol, port)
            if self._tried.get(protocol) != (port, why):
                self._tried[protocol] = port, why
                self._changed()
            if why:
                await asyncio.sleep(RETRY_SECONDS)
        del self._opening[protocol]

    async def _try(self, protocol: str, port: int) -> str:
        """Return why the scheduler does not listen at `port`; `""` where it does now."""
        scheduler: Any = self._scheduler  # these are not typed
        arguments = scheduler.security.get_listen_args("scheduler") | {"handshake_overrides": dict(_AS_ITS_OWN)}
        try:
            await scheduler.listen(f"{protocol}://:{port}", allow_offload=False, **arguments)
        except Exception as error:
            logger.warning("gpudask: the scheduler does not listen for %s at port %s", protocol, port, exc_info=True)
            return f"{type(error).__name__}: {error}"[:_WHY_LENGTH]
        logger.info("gpudask: the scheduler listens for %s at port %s, too", protocol, port)
        return ""
