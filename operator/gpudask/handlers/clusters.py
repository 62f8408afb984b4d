"""The handlers, and how kopf is set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import kopf

from gpudask.api.resource import GROUP, PLURAL, VERSION
from gpudask.clients.errors import ApiError
from gpudask.handlers.health import Health
from gpudask.handlers.session import Session, session
from gpudask.reconcile.operator import Operator, ResourceMissingError

Json = dict[str, Any]
_RETRY_SECONDS = 3.0  # kopf's own pause is a minute: long, where the API server just restarts
_FIRST_BACKOFFS_SECONDS, _LAST_BACKOFF_SECONDS = (0.5, 1, 2, 3, 5, 8, 13, 21), 30
_CONNECT_SECONDS = 10.0


def register(operator: Operator) -> kopf.OperatorRegistry:
    """A registry with the handlers of `operator`."""
    registry = kopf.OperatorRegistry()
    health = Health(operator)

    @kopf.on.startup(registry=registry, backoff=_RETRY_SECONDS)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await health.start(operator.settings.health_port)  # before the caches fill, which may take minutes
        try:
            await operator.start()
        except ResourceMissingError as error:
            operator.cannot_start = str(error)
            raise kopf.PermanentError(str(error)) from error
        except ApiError as error:  # of which kopf would print a traceback, as of a defect
            raise kopf.TemporaryError(str(error), delay=_RETRY_SECONDS) from error

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # kopf cancels what it does not know five seconds into its shutdown: ours ends here, in order.
        await operator.stop()
        await health.stop()

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> Session | None:
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        return session(found) if found is not None else None

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        if type == "DELETED":
            operator.registry.gone(body["metadata"])
        else:
            operator.registry.seen(_plain(body))

    return registry


def configure(settings: kopf.OperatorSettings) -> None:
    """Switch off what kopf would write to objects, and what it cannot do with little rights."""
    # With only event handlers kopf takes its finalizer off whatever it sees, other operators' objects included.
    settings.persistence.finalizer = f"{GROUP}/none"
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.inactivity_timeout = 400
    settings.peering.standalone = True
    # kopf gives up after 54 s of refusals or silence by default, and ends the whole operator: for an API server that is
    # away for minutes, or for one of many namespaces that was deleted together with the rights in it.
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = _CONNECT_SECONDS


class Backoffs:
    """Pauses between one request's attempts, in seconds, without end. Each request has its own."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_FIRST_BACKOFFS_SECONDS, itertools.repeat(_LAST_BACKOFF_SECONDS))


class _NoDiffs(kopf.DiffBaseStorage):
    """Nothing to compare with: no handler asks what changed, and kopf would copy each object at each event for it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """Keep nothing."""


def _plain(body: kopf.Body) -> Json:
    return {key: _thaw(value) for key, value in body.items()}


def _thaw(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_thaw(item) for item in value]
    if hasattr(value, "items"):
        return {key: _thaw(item) for key, item in value.items()}
    return value
