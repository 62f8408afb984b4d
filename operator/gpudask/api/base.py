"""The base class of the resource's models, and what they share: rules in CEL and Python, durations, quantities.

Each rule stands once, for the API server in CEL and for the operator in Python. The API server refuses a manifest at
once. The operator checks again, since an object may have been stored before the rule existed, and then puts the same
message into a condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from gpudask.api import Json

FreeObject = Annotated[Json, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
MEBIBYTE = 1024**2


@dataclass(frozen=True)
class Rule:
    """One rule of one model.

    `cel` is None where the schema says it already (keys of list-maps). `message` says what to write; `field` is
    where the fault lies, such as `.name`, empty for the object itself. `holds` gets the parsed model; it is None where
    the operator can act on what breaks the rule.
    """

    cel: str | None
    message: str
    holds: Callable[[Any], bool] | None
    field: str = ""

    def schema(self) -> dict[str, str]:
        """The rule as an item of `x-kubernetes-validations`."""
        assert self.cel is not None
        return {"rule": self.cel, "message": self.message} | ({"fieldPath": self.field} if self.field else {})


def check(model: Any, rules: Iterable[Rule]) -> None:
    """Raise the first broken rule, as an error that pydantic places in the resource."""
    for rule in rules:
        if rule.holds is not None and not rule.holds(model):
            raise PydanticCustomError("rule", "{message}", {"message": rule.message, "field": rule.field})


def distinct(field: str, key: str) -> Rule:
    """A rule: the items of a list-map differ in their key."""
    attribute = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)

    def holds(model: Any) -> bool:
        keys = [getattr(item, key) for item in getattr(model, attribute)]
        return len(set(keys)) == len(keys)

    return Rule(None, f"each item needs a {key} of its own: rename or remove one", holds, f".{field}")


def no_own_flags(flags: tuple[str, ...], instead: str) -> Rule:
    """A rule: `extraArgs` has none of the flags that the operator sets."""
    listed = ", ".join(f"'{flag}'" for flag in flags)

    def holds(model: Any) -> bool:
        return not any(argument.split("=", 1)[0] in flags for argument in model.extra_args)

    return Rule(
        f"!has(self.extraArgs) || !self.extraArgs.exists(a, [{listed}].exists(f, a == f || a.startsWith(f + '=')))",
        f"extraArgs may not set {', '.join(flags)}, which the operator sets: {instead}",
        holds,
        ".extraArgs",
    )


def _enough_memory(model: Any) -> bool:
    return "memory" not in model.resources or number(model.resources["memory"]) >= MEBIBYTE


ENOUGH_MEMORY = Rule(
    "!has(self.resources) || !('memory' in self.resources) || !isQuantity(string(self.resources['memory']))"
    " || !quantity(string(self.resources['memory'])).isLessThan(quantity('1Mi'))",
    "memory is under 1Mi: a bare number counts bytes and m means thousandths, write for example 500Mi or 16Gi",
    _enough_memory,
    ".resources",
)


# What a container may ask for under a name without a domain:
# https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
HUGE_PAGES = "hugepages-"


def is_resource(name: str) -> bool:
    """True if a container may ask for `name`: Kubernetes knows it, or it has the domain of whoever offers it."""
    return name in PLAIN_RESOURCES or name.startswith(HUGE_PAGES) or "/" in name


KNOWN_RESOURCES = Rule(
    f"!has(self.resources) || self.resources.all(k, k in [{', '.join(repr(name) for name in PLAIN_RESOURCES)}]"
    f" || k.startsWith('{HUGE_PAGES}') || k.contains('/'))",
    f"Kubernetes knows {', '.join(PLAIN_RESOURCES)} and {HUGE_PAGES}2Mi, and others by a domain, as"
    " example.com/dongle: write memory, not mem, cpu, not cores, and gpu: {count: 1} of a pool for GPUs",
    lambda model: all(is_resource(name) for name in model.resources),
    ".resources",
)


class Model(BaseModel):
    """Base of every part of the resource: camelCase in JSON, frozen, unknown fields kept out."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        alias_generator=lambda name: name.split("_")[0] + "".join(w.title() for w in name.split("_")[1:]),
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obeys_rules(self) -> Self:
        check(self, self.rules)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> Json:
        reference = handler(core_schema)
        if validations := [rule.schema() for rule in cls.rules if rule.cel is not None]:
            handler.resolve_ref_schema(reference)["x-kubernetes-validations"] = validations
        return reference


# Durations and quantities as Kubernetes writes them. The CRD's CEL rules and the models use the same patterns.
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
