"""Parser of what the operator wants: the body of `POST /gpudask/v1/desired`, and the pools file.

Bad input is a `BadInputError` that names the field; nothing here touches the scheduler.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import PROTOCOL

ACCEPTS = ("any", "annotated")
DATA = ("move", "release")
_PROTOCOL = re.compile("[a-z]{1,16}")
_PORTS = 65_536


class BadInputError(ValueError):
    """A field of the operator's request that is missing or wrong; the message names it."""


@dataclass(frozen=True)
class RetireRequest:
    """One pod to retire, and how."""

    pod: str
    data: str
    if_idle: bool
    forced: bool = False  # it is deleted although it may not be drained: its hook waits no longer


@dataclass(frozen=True)
class Desired:
    """The operator's whole desired state."""

    version: str
    pools: dict[str, str]  # pool -> "any" | "annotated"
    gpu_pools: dict[str, dict[str, float]]  # pool -> what each of its workers offers by itself
    retiring: tuple[RetireRequest, ...]
    offers: dict[str, dict[str, float]] = field(default_factory=dict)  # pool -> resource -> amount for each worker
    listen: dict[str, int] = field(default_factory=dict)  # protocol -> port, beside the scheduler's own
    task_stream: bool = False  # whether it is kept, for a performance report


def parse_desired(body: bytes) -> Desired:
    """Read the body of a POST; raises `BadInputError`."""
    try:
        given = json.loads(body)
    except ValueError as error:
        raise BadInputError(f"body: expected JSON, got {error}") from error
    _expect(isinstance(given, dict), "body", "an object", given)
    _expect(given.get("protocol") == PROTOCOL, "protocol", str(PROTOCOL), given.get("protocol"))
    version = given.get("version")
    _expect(isinstance(version, str) and version, "version", "a string", version)
    retiring = given.get("retiring")
    _expect(isinstance(retiring, list), "retiring", "a list", retiring)
    requests = tuple(_retiring(item, f"retiring[{i}]") for i, item in enumerate(retiring))
    for i, request in enumerate(requests):
        if any(other.pod == request.pod for other in requests[:i]):
            raise BadInputError(f"retiring[{i}].pod: {request.pod!r} is named twice")
    pools, gpu_pools, listen = parse_pools(given.get("pools"))
    offers = _offers(given.get("offers", {}), "offers")
    task_stream = given.get("task_stream", False)
    _expect(isinstance(task_stream, bool), "task_stream", "true or false", task_stream)
    return Desired(
        version=version,
        pools=pools,
        gpu_pools=gpu_pools,
        retiring=requests,
        offers=offers,
        listen=listen,
        task_stream=task_stream,
    )


def parse_pools(given: Any) -> tuple[dict[str, str], dict[str, dict[str, float]], dict[str, int]]:
    """Read `{"gpu": {"accepts": "any", "gpu": true, "offers": {"GPU": 1}, "listen": {"ucxx": 8788}}, ...}`.

    Returned are what pools accept; those with GPUs; and where the scheduler has to listen for any of them. `gpu`,
    `offers` and `listen` may be missing, as from an older operator. Raises `BadInputError`.
    """
    _expect(isinstance(given, dict), "pools", "an object", given)
    for name, pool in given.items():
        _expect(isinstance(pool, dict), f"pools.{name}", "an object", pool)
        _choice(pool.get("accepts"), f"pools.{name}.accepts", ACCEPTS)
        _expect(isinstance(pool.get("gpu", False), bool), f"pools.{name}.gpu", "true or false", pool.get("gpu"))
    accepts = {name: pool["accepts"] for name, pool in given.items()}
    offers = _offers({name: pool.get("offers", {}) for name, pool in given.items() if pool.get("gpu")}, "pools")
    return accepts, offers, _listen(given)


def read_pools(path: str) -> tuple[dict[str, str], dict[str, dict[str, float]], dict[str, int]]:
    """Read the pools file that stands in for the operator's first request; raises `BadInputError`."""
    try:
        return parse_pools(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadInputError(f"GPUDASK_POOLS_FILE {path}: {error}") from error


def _listen(pools: dict[str, Any]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for name, pool in pools.items():
        listen = pool.get("listen", {})
        _expect(isinstance(listen, dict), f"pools.{name}.listen", "an object", listen)
        for protocol, port in listen.items():
            _expect(_PROTOCOL.fullmatch(protocol), f"pools.{name}.listen", "protocols", protocol)
            is_port = isinstance(port, int) and not isinstance(port, bool) and 0 < port < _PORTS
            _expect(is_port, f"pools.{name}.listen.{protocol}", f"a port below {_PORTS}", port)
            agrees = wanted.setdefault(protocol, port) == port
            _expect(agrees, f"pools.{name}.listen.{protocol}", f"{wanted[protocol]}, as another pool has it", port)
    return wanted


def _offers(given: Any, where: str) -> dict[str, dict[str, float]]:
    _expect(isinstance(given, dict), where, "an object", given)
    for pool, amounts in given.items():
        _expect(isinstance(amounts, dict), f"{where}.{pool}", "an object", amounts)
        for name, amount in amounts.items():
            is_amount = isinstance(amount, int | float) and not isinstance(amount, bool) and amount > 0
            _expect(is_amount, f"{where}.{pool}.{name}", "a number above zero", amount)
    return {pool: {name: float(amount) for name, amount in amounts.items()} for pool, amounts in given.items()}


def _retiring(given: Any, field: str) -> RetireRequest:
    _expect(isinstance(given, dict), field, "an object", given)
    pod, if_idle = given.get("pod"), given.get("if_idle")
    _expect(isinstance(pod, str) and pod, f"{field}.pod", "a pod's Dask name", pod)
    _choice(given.get("data"), f"{field}.data", DATA)
    _expect(isinstance(if_idle, bool), f"{field}.if_idle", "true or false", if_idle)
    forced = given.get("forced", False)
    _expect(isinstance(forced, bool), f"{field}.forced", "true or false", forced)
    return RetireRequest(pod=pod, data=given["data"], if_idle=if_idle, forced=forced)


def _choice(given: Any, field: str, choices: tuple[str, ...]) -> None:
    _expect(given in choices, field, " or ".join(repr(choice) for choice in choices), given)


def _expect(holds: Any, field: str, expected: str, given: Any) -> None:
    if not holds:
        raise BadInputError(f"{field}: expected {expected}, got {given!r}")
