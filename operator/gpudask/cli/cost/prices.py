"""A price file: what a GPU costs an hour, by the labels of the nodes that its pool asks for.

A pool's node selector decides, not the nodes that its pods were on: it is still known when these are gone, so the same
hours have the same price tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gpudask.cli.output import CliError, Exit

_Money = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=18)]
_EXAMPLE = (
    "{currency: EUR, default: 2.5, rules: [{nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}, perGpuHour: 4.2}]}"
)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


class PriceRule(_Strict):
    """The price of GPUs whose pool selects nodes by all of these labels, in money an hour for one GPU."""

    node_selector: Annotated[dict[str, str], Field(min_length=1, max_length=16)]
    per_gpu_hour: _Money


class Prices(_Strict):
    """A price file. The first rule that fits decides; `default` is the price where none does."""

    currency: Annotated[str, Field(min_length=1, max_length=8, pattern=r"^[^\s\d,;\"']+$")]
    default: _Money | None = None
    rules: Annotated[list[PriceRule], Field(max_length=1000)] = Field(default_factory=list)

    def per_gpu_hour(self, node_selector: Mapping[str, str]) -> Decimal | None:
        """The price of one GPU for an hour on such nodes; None where nothing says it."""
        for rule in self.rules:
            if rule.node_selector.items() <= node_selector.items():
                return rule.per_gpu_hour
        return self.default


def parse(document: Any, place: str) -> Prices:
    """The prices that a YAML document says.

    Args:
        document: as it was read.
        place: the file's name, for the message.

    Raises:
        CliError: it is not valid; the message names each field and what is wrong with it.
    """
    if not isinstance(document, dict):
        raise CliError(f"{place} holds no prices: write for example {_EXAMPLE}", Exit.USAGE)
    try:
        return Prices.model_validate(document)
    except ValidationError as error:
        faults = [f"{_path(fault['loc'])}: {fault['msg'][:1].lower()}{fault['msg'][1:]}" for fault in error.errors()]
        raise CliError(f"{place}: {'; '.join(faults)}. Write for example {_EXAMPLE}", Exit.USAGE) from error


def _path(location: tuple[int | str, ...]) -> str:
    """`rules[0].perGpuHour`, as people write it."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")
