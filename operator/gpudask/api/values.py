"""Durations and quantities as Kubernetes writes them, parsed to seconds and plain numbers.

The patterns stand here once; the CRD's CEL rules and the models both use them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
DURATION_PATTERN = r"^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
DURATION_ADVICE = "write a duration such as 30s, 5m or 1h30m"

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"^([+-]?[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]+)|(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?$")
_QUANTITY_UNITS = {
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
QUANTITY_ADVICE = "write a quantity such as 4, 500m, 16Gi or 200G"


def seconds(duration: str) -> float:
    """The length of `duration` ("1h30m") in seconds.

    Raises:
        ValueError: it is no duration; the message says what to write.
    """
    parts = _DURATION_PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is not a duration: {DURATION_ADVICE}")
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def number(quantity: str | float) -> float:
    """The value of a Kubernetes quantity: cores, bytes or a count.

    Raises:
        ValueError: it is no quantity, or a negative one; the message says what to write.
    """
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"{quantity!r} is not a quantity: {QUANTITY_ADVICE}")
    digits, exponent, unit = match.groups()
    try:
        value = float(Decimal(digits + (exponent or "")) * _QUANTITY_UNITS.get(unit, Decimal(1)))
    except ArithmeticError as error:
        raise ValueError(f"{quantity!r} is too large: {QUANTITY_ADVICE}") from error
    if value == float("inf"):
        raise ValueError(f"{quantity!r} is too large: {QUANTITY_ADVICE}")
    if value < 0:
        raise ValueError(f"{quantity!r} is negative: {QUANTITY_ADVICE}")
    return value


def _checked_duration(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration: {DURATION_ADVICE}")
    seconds(value)
    return value


def _checked_quantity(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a quantity: {QUANTITY_ADVICE}")
    number(value)
    return value


# A bare number is let through to the rule, which says what to write; "must be of type string" would not.
Duration = Annotated[
    str,
    BeforeValidator(_checked_duration),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == string && self.matches('{DURATION_PATTERN}')",
                    "message": DURATION_ADVICE,
                }
            ],
        }
    ),
]

# A fraction must be a string in custom resources: the API server knows no "number or string".
Quantity = Annotated[
    str | int | float,
    BeforeValidator(_checked_quantity),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0"
                    " : isQuantity(string(self)) && sign(quantity(string(self))) >= 0",
                    "message": QUANTITY_ADVICE,
                }
            ],
        }
    ),
]
