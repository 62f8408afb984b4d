"""Dask configuration as environment variables, the way that needs nothing in the image.

https://docs.dask.org/en/stable/configuration.html#environment-variables
"""

from __future__ import annotations

import ast
import re
from typing import Any

# Other keys (`GPU`, `distributed.worker`) would not survive as a variable's name: they travel inside a value.
_PLAIN_KEY = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
# Longer strings are not looked into, which may take seconds: quoted, Dask reads them as what they are in any case.
_LONGEST_LOOKED_INTO = 1000  # characters
# Words that Dask reads as None, False and True.
_WORDS = ("none", "null", "false", "true")


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
        deeper = isinstance(value, dict) and value and all(_PLAIN_KEY.fullmatch(inner) for inner in value)
        flat.update(_flatten(name, value) if deeper else {name: value})
    return flat


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    if len(value) > _LONGEST_LOOKED_INTO or value.lower() in _WORDS:
        return repr(value)
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    except (TypeError, MemoryError, RecursionError):
        return repr(value)  # Dask would stumble over it, too
    return repr(value)
