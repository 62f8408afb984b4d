"""Run kopf as the settings say."""

from __future__ import annotations

import logging

import kopf

from gpudask.handlers.clusters import register
from gpudask.reconcile.start import Operator
from gpudask.settings import Settings


def run(settings: Settings) -> None:
    """Run kopf with our handlers; returns when it was told to stop."""
    kopf.configure(
        debug=settings.log_level == "DEBUG",
        log_format=kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL,
    )
    logging.getLogger("gpudask").setLevel(settings.log_level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[settings.log_level]))
    operator = Operator(settings)
    kopf.run(
        registry=register(operator),
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
    )
