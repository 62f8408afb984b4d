"""The handlers, and how kopf is set."""

from __future__ import annotations

from typing import Any

import kopf

from gpudask.api.resource import GROUP, PLURAL, VERSION
from gpudask.reconcile.start import Operator, ResourceMissingError

Json = dict[str, Any]
_RETRY_SECONDS = 3.0  # kopf's own pause is a minute: long, where the API server just restarts


def register(operator: Operator) -> kopf.OperatorRegistry:
    """A registry with the handlers of `operator`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry, backoff=_RETRY_SECONDS)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        try:
            await operator.start()
        except ResourceMissingError as error:
            raise kopf.PermanentError(str(error)) from error

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # kopf cancels what it does not know five seconds into its shutdown: ours ends here, in order.
        await operator.stop()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's name
        if type == "DELETED":
            operator.registry.gone(body["metadata"]["uid"])
        else:
            operator.registry.seen(_plain(body))

    @kopf.on.probe(id="synced", registry=registry)
    def synced(**_: Any) -> bool:
        return operator.synced

    @kopf.on.probe(id="restarts", registry=registry)
    def restarts(**_: Any) -> dict[str, int]:
        """Each of these is a defect, by what failed and was begun again; the log has the tracebacks."""
        return dict(operator.supervisor.restarts)

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
