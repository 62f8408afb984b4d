"""What every part of the resource is: a frozen model with camelCase names, and the rules that it obeys."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import CoreSchema

from gpudask.api.rules import Rule, check

Json = dict[str, Any]
FreeObject = Annotated[Json, WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]


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
