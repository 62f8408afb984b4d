"""Run kopf as the settings say."""

from __future__ import annotations

import logging
import time

import kopf

from gpudask.handlers.clusters import register
from gpudask.reconcile.operator import Operator
from gpudask.settings import Settings

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 1.0, 60.0
# What ran for so long and then failed begins anew with the first pause.
_STEADY_SECONDS = 600.0


def run(settings: Settings) -> None:
    """Run kopf with our handlers; returns when it was told to stop.

    An error that kopf cannot get over, such as half a line of a watch, begins it anew: the kubelet would wait for up to
    five minutes before it restarts the container. So does an etcd that was restored from a backup: kopf's own watch
    would wait for versions that may come in days.

    Raises:
        Exception: kopf's, where it cannot start before somebody mends something; its message says what.
    """
    kopf.configure(
        debug=settings.log_level == "DEBUG",
        log_format=kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL,
    )
    logging.getLogger("gpudask").setLevel(settings.log_level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[settings.log_level]))
    pause = _FIRST_PAUSE_SECONDS
    while True:
        began = time.monotonic()
        operator = Operator(settings)
        try:
            _run_once(operator)
        except Exception:
            if operator.cannot_start:
                raise
            _LOG.exception("kopf ended")
        else:
            if not operator.begins_anew.is_set():
                return
        if time.monotonic() - began >= _STEADY_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        _LOG.warning("it begins anew in %.0f s", pause)
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_SECONDS)


def _run_once(operator: Operator) -> None:
    settings = operator.settings
    kopf.run(
        registry=register(operator),
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        stop_flag=operator.begins_anew,
    )
