"""The models of the resource: frozen, with camelCase names, and rules that need more than a type.

Each rule stands once, for the API server in CEL and for the operator in Python. The API server refuses a manifest at
once. The operator checks again, since an object may have been stored before the rule existed, and then says the same
words in a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from gpudask.api.json_object import Json
from gpudask.api.values import number

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
        """As an item of `x-kubernetes-validations`."""
        assert self.cel is not None
        return {"rule": self.cel, "message": self.message} | ({"fieldPath": self.field} if self.field else {})


def check(model: Any, rules: Iterable[Rule]) -> None:
    """Raise the first broken rule, as an error that pydantic places in the resource."""
    for rule in rules:
        if rule.holds is not None and not rule.holds(model):
            raise PydanticCustomError("rule", "{message}", {"message": rule.message, "field": rule.field})


def distinct(field: str, key: str) -> Rule:
    """The items of a list-map differ in their key."""
    attribute = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)

    def holds(model: Any) -> bool:
        keys = [getattr(item, key) for item in getattr(model, attribute)]
        return len(set(keys)) == len(keys)

    return Rule(None, f"each item needs a {key} of its own: rename or remove one", holds, f".{field}")


def no_own_flags(flags: tuple[str, ...], instead: str) -> Rule:
    """`extraArgs` leaves the flags alone that the operator sets."""
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
