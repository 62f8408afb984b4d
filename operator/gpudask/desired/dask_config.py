"""Dask configuration as environment variables, the way that needs nothing in the image.

https://docs.dask.org/en/stable/configuration.html#environment-variables
"""

from __future__ import annotations

import ast
from typing import Any


def environment(config: dict[str, Any]) -> list[dict[str, str]]:
    """`{"distributed": {"worker": {"x": 1}}}` -> `DASK_DISTRIBUTED__WORKER__X=1`, sorted by name.

    Dask reads the values as Python literals where they are such; strings that look like one are quoted.
    """
    flat = _flatten("DASK", config)
    return [{"name": name, "value": _literal(flat[name])} for name in sorted(flat)]


def _flatten(prefix: str, node: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{'_' if prefix == 'DASK' else '__'}{key.upper().replace('-', '_').replace('.', '__')}"
        flat |= _flatten(name, value) if isinstance(value, dict) and value else {name: value}
    return flat


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return repr(value)
