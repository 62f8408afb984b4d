"""Amounts of a GPU's memory: bytes as Kubernetes writes them, or a share of the device as dask-cuda takes it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from gpudask.api.rules import MEBIBYTE
from gpudask.api.values import number

_SHARE = r"(0[.][0-9]*[1-9][0-9]*|1([.]0+)?)"
_ADVICE = "write bytes such as 40Gi, at least 1Mi, or a share of the device's memory up to 1, quoted: '0.5'"


def device_memory(value: str | float) -> float | int:
    """The amount that `value` says: bytes as an int, or a share of the device's memory as a float up to 1.

    Raises:
        ValueError: it is neither; the message says what to write.
    """
    if re.fullmatch(_SHARE, str(value)):
        return float(value)
    try:
        amount = int(number(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}") from error
    if amount < MEBIBYTE:
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}")
    return amount


def _checked(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no amount of a GPU's memory: {_ADVICE}")
    device_memory(value)
    return value


DeviceMemory = Annotated[
    str | int | float,
    BeforeValidator(_checked),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int ? self == 1 || self >= {MEBIBYTE} : string(self).matches('^{_SHARE}$')"
                    " || (isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('1Mi')))",
                    "message": _ADVICE,
                }
            ],
        }
    ),
]
