"""How large and how deep a spec may be: what the CRD cannot say, checked before anything is made of it.

Whoever reads a spec does it recursively, and all at once: one without end would stop the operator for everybody.
Looking costs no more than the limits allow, whatever came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

# Far above what pods can have: Linux takes no environment variable above 128 KiB, etcd no object above 1.5 MiB.
MAX_SPEC_BYTES = 512 * 1024
MAX_CONFIG_BYTES = 64 * 1024  # every pod carries it: a thousand of them are 64 MiB of the API server's already
MAX_TEMPLATE_BYTES = 128 * 1024
# The parts of a pod's spec are eleven levels deep at most; Dask's configuration has five.
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class _Extent:
    size: int  # bytes of its JSON, about
    depth: int  # objects and lists within each other


def broken_limits(spec: Any) -> list[str]:
    """What is too large or too deep in `spec`, each with its field and what to write; empty: nothing is."""
    said = [text for field, part, limit in _parts(spec) if (text := _broken(field, part, limit))]
    return said or [text for text in [_broken("spec", spec, MAX_SPEC_BYTES)] if text]


def _parts(spec: Any) -> Iterator[tuple[str, Any, int]]:
    """The parts in which anything may stand: field, value, bytes at most."""
    spec = _object(spec)
    yield "spec.config", spec.get("config"), MAX_CONFIG_BYTES
    yield "spec.template", spec.get("template"), MAX_TEMPLATE_BYTES
    yield "spec.scheduler.template", _object(spec.get("scheduler")).get("template"), MAX_TEMPLATE_BYTES
    pools = spec.get("pools")
    for number, pool in enumerate(pools if isinstance(pools, list) else ()):
        yield f"spec.pools[{number}].template", _object(pool).get("template"), MAX_TEMPLATE_BYTES


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _broken(field: str, value: Any, most_bytes: int) -> str:
    extent = _measure(value, most_bytes)
    if extent.depth > MAX_DEPTH:
        return f"{field}: nested more than {MAX_DEPTH} levels deep: write it flatter"
    if extent.size > most_bytes:
        return (
            f"{field}: larger than {most_bytes // 1024} KiB: put what is large into a ConfigMap, a Secret or the image,"
            " and mount it"
        )
    return ""


def _measure(value: Any, most_bytes: int) -> _Extent:
    """How large and deep `value` is; no further than just beyond the limits. Not recursive."""
    size, depth = 0, 0
    left = [(value, 1)]
    while left and size <= most_bytes and depth <= MAX_DEPTH:
        node, level = left.pop()
        if isinstance(node, dict):
            depth = max(depth, level)
            size += 2 + sum(len(key) + 4 for key in node)  # "key":value,
            left.extend((item, level + 1) for item in node.values())
        elif isinstance(node, list):
            depth = max(depth, level)
            size += 2 + len(node)
            left.extend((item, level + 1) for item in node)
        else:
            size += _bytes(node)
    return _Extent(size, depth)


def _bytes(value: Any) -> int:
    if not isinstance(value, str):
        return 4
    return len(value) + 2 if value.isascii() else len(value.encode(errors="replace")) + 2
