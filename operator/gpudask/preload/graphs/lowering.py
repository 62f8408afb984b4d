"""What a worker does for the scheduler: it reads an expression, lowers it to tasks, and pickles these one by one.

`lower` travels to the worker with this module, by value: so it uses distributed, dask and the standard library, and
nothing else of ours. `describe`, `materialize`, `GpuNames` and `gpu_work` are used on both sides.

**GPU work** are the tasks that need a device. Tasks are judged by group, those of one step of the program:

    names(group)  = one of its tasks, pickled, names a GPU module, or its frame is of one (its meta)
    output(group) = its frame is of a GPU module; where it has no frame: it is GPU work, and moves nothing to a host
    work(group)   = names(group) or output(any group that it depends on)

So what makes, takes or gives frames of cuDF is GPU work, and what goes on with a result on the host is not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

DESERIALIZE, LOWER = "deserialize", "lower"  # where it failed
_TEXT = 500  # characters of an error's text
_CAUSES = 10
# Of methods and functions that give what lies in a host's memory
_TO_HOST = re.compile(rb"(?<![a-z_])(?:to_pandas|to_numpy|to_arrow|to_host|asnumpy|copy_to_host)(?![A-Za-z0-9_])")

# A task: key, keys that it depends on, its bytes, which of the graph's buffers these refer to, whether it only makes
# data, and for a barrier of a P2P shuffle (spec without meta, meta or None), each as bytes.
Row = tuple[Any, tuple[Any, ...], bytes, tuple[int, ...], bool, "tuple[bytes, bytes | None] | None"]


async def lower(
    header: Any, frames: list[Any], keys: set[Any], limit: int, modules: list[str], *, is_ordered: bool
) -> dict[str, Any]:
    """Lower a serialized expression in a thread, so that the worker goes on.

    Args:
        header: what `deserialize` of distributed takes.
        frames: the same.
        keys: what the client wants of it.
        limit: bytes that all tasks together may have.
        modules: whose values and functions need a device; none: no task is to be judged by that.
        is_ordered: the client has ordered the tasks already.

    Returns:
        `graph`: pickled (rows, buffers, annotations, keys of GPU work, order), or `size` where it has more than
        `limit`, or `error`: what `describe` says, with the exception pickled, and where it failed.
    """
    return await asyncio.to_thread(_lower, header, frames, keys, limit, modules, is_ordered=is_ordered)


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error in words, so that it can be judged where its type may be missing: itself first, then causes."""
    chain: list[tuple[str, list[str], str, str]] = []  # name and bases of its type, text, and the module it asks for
    each: BaseException | None = error
    while each is not None and len(chain) < _CAUSES:
        cls = type(each)
        bases = [base.__name__ for base in cls.__mro__]
        module = str(each.name or "") if isinstance(each, ImportError) else ""
        chain.append((f"{cls.__module__}.{cls.__qualname__}", bases, _text(each), module))
        each = each.__cause__ or each.__context__
    return {"chain": chain}


def materialize(expr: Any, keys: set[Any]) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]]]:
    """Return the tasks of an expression, and its annotations, as `Scheduler.update_graph` has them."""
    from dask._expr import LLGExpr  # noqa: PLC0415 (what is needed on a worker is imported there)
    from distributed.scheduler import _cull, _materialize_graph  # noqa: PLC0415

    dsk, *_, annotations = _materialize_graph(expr=expr, validate=False)
    if isinstance(expr, LLGExpr):
        dsk = _cull(dsk, keys)
    return dsk, {name: dict(values) for name, values in annotations.items()}


class GpuNames:
    """Names of GPU modules in pickled bytes, as pickle has those of modules, types and imports: a whole short string.

    A text that has the word is none; a list with just the word is one.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        longest_first = sorted((re.escape(module.encode()) for module in modules), key=len, reverse=True)
        # The opcode of a string of up to 255 bytes, its length, and how it begins
        self._begins = re.compile(rb"\x8c(.)(" + b"|".join(longest_first) + rb")(\.?)", re.DOTALL)

    def are_in(self, pickled: Any) -> bool:
        """Return whether one is in some bytes."""
        for found in self._begins.finditer(pickled):
            beyond = found[1][0] - len(found[2])
            if beyond == 0 or (beyond > 0 and found[3]):
                return True
        return False


def gpu_work(expr: Any, dsk: dict[Any, Any], pickled: Callable[[Any], bytes], modules: list[str]) -> list[Any]:
    """Return the keys of the tasks that need a device. `pickled(key)`: a task's bytes; each is asked for once."""
    named = GpuNames(modules)
    frames = _frames(expr, set(modules))
    dependents: defaultdict[Any, set[Any]] = defaultdict(set)
    names, to_host = {group for group, is_gpu in frames.items() if is_gpu}, set()
    for key, node in dsk.items():
        group, payload = _group(key), pickled(key)
        for other in node.dependencies:
            dependents[_group(other)].add(group)
        if group not in names and named.are_in(payload):
            names.add(group)
        if group not in frames and _TO_HOST.search(payload):
            to_host.add(group)
    work, new = set(names), list(names)
    while new:
        group = new.pop()
        if frames.get(group, group not in to_host):
            new += dependents[group] - work
            work |= dependents[group]
    return [key for key in dsk if _group(key) in work]


def _frames(expr: Any, modules: set[str]) -> dict[Any, bool]:
    """Return group -> whether its result is of a GPU module, as far as the expression knows what it is of."""
    found: dict[Any, bool] = {}
    for node in expr.walk() if hasattr(expr, "walk") else ():
        try:
            meta = node._meta  # noqa: SLF001
            found[node._name] = type(meta).__module__.partition(".")[0] in modules  # noqa: SLF001
        except Exception:  # noqa: BLE001, S112 (not every expression is a frame; its meta may be computed here)
            continue
    return found


def _group(key: Any) -> Any:
    """Return what the tasks of one step have in common: all of `(name, 0)`, `(name, 1)`, ... have the name."""
    return key[0] if type(key) is tuple and key else key


def _lower(
    header: Any, frames: list[Any], keys: set[Any], limit: int, modules: list[str], *, is_ordered: bool
) -> dict[str, Any]:
    from distributed.protocol.serialize import deserialize  # noqa: PLC0415

    try:
        expr = deserialize(header, frames)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 (whatever the user's types raise)
        return {"error": _packed(error, DESERIALIZE)}
    try:
        return _graph(expr, keys, limit, modules, is_ordered=is_ordered)
    except Exception as error:  # noqa: BLE001
        return {"error": _packed(error, LOWER)}


def _graph(expr: Any, keys: set[Any], limit: int, modules: list[str], *, is_ordered: bool) -> dict[str, Any]:
    import dask.order  # noqa: PLC0415

    dsk, annotations = materialize(expr, keys)
    order = None if is_ordered else dask.order.order(dsk=dsk)
    buffers = _Buffers()
    rows, size = [], 0
    for key, node in dsk.items():
        row, n = _row(key, node, buffers)
        rows.append(row)
        size += n
        if size + buffers.size > limit:
            return {"size": size + buffers.size}
    payloads = {row[0]: row[2] for row in rows}
    on_gpu = gpu_work(expr, dsk, payloads.__getitem__, modules) if modules else []
    return {"graph": pickle.dumps((rows, buffers.contents, annotations, on_gpu, order), protocol=5)}


def _row(key: Any, node: Any, buffers: _Buffers) -> tuple[Row, int]:
    from distributed.protocol.pickle import dumps  # noqa: PLC0415
    from distributed.shuffle._core import P2PBarrierTask  # noqa: PLC0415

    refers: list[int] = []
    payload = dumps(node, buffer_callback=lambda buffer: refers.append(buffers.add(buffer)))  # type: ignore[no-untyped-call]
    barrier = None
    size = len(payload)
    if isinstance(node, P2PBarrierTask):
        spec: Any = node.spec
        meta = None
        if hasattr(spec, "meta"):
            meta = dumps(spec.meta)  # type: ignore[no-untyped-call]
            spec = dataclasses.replace(spec, meta=None)
        barrier = dumps(spec), meta  # type: ignore[no-untyped-call]
        size += len(barrier[0]) + len(meta or b"")
    row = key, tuple(node.dependencies), payload, tuple(refers), bool(node.data_producer), barrier
    return row, size


class _Buffers:
    """Large pieces of memory that tasks refer to: one that many share is sent, and kept, once."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.size = 0
        self._known: dict[tuple[int, int], int] = {}
        self._alive: list[Any] = []  # else the address of one that is gone could be another's

    def add(self, buffer: Any) -> int:
        """Return the index of a `pickle.PickleBuffer`."""
        with memoryview(buffer) as view:
            owner, nbytes = view.obj, view.nbytes
        known = id(owner), nbytes
        if known not in self._known:
            self._known[known] = len(self.contents)
            self._alive.append(owner)
            content = bytes(buffer.raw())
            self.contents.append(content)
            self.size += len(content)
        return self._known[known]


def _packed(error: Exception, stage: str) -> dict[str, Any]:
    from distributed.core import error_message  # noqa: PLC0415

    said = error_message(error)["exception"]  # with its traceback, and short enough
    return describe(error) | {"stage": stage, "pickled": bytes(getattr(said, "data", b""))}


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT]
    except Exception:  # noqa: BLE001 (a user's type)
        return ""
