"""What runs on the worker for a notebook: its namespace, and one cell in it. It travels by value, as remote.py does.

The namespace lives as long as the task that holds it: until the notebook ends it, is gone, or runs no cell for long.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import ast
import linecache
import pickle
import time
from types import ModuleType
from typing import Any

from distributed import get_worker

from gpudask.kubecluster.on_gpu.remote import failure, pickled

NAMESPACES = 32  # of a worker
NAMES = 10_000  # of a namespace, and of what a cell sends back
MOST_BYTES = 256_000_000  # of what one cell sends back
MOST_SHOWN = 1_000_000  # characters of what a cell displays


def hold_namespace(session: str, idle_seconds: float) -> bool:
    """Be the namespace of one notebook until nobody wants it, or no cell has run for so many seconds: then True.

    Raises:
        RuntimeError: there are too many on this worker.
    """
    spaces = namespaces()
    if len(spaces) >= NAMESPACES:
        raise RuntimeError(f"{NAMESPACES} notebooks have a namespace on this worker: end one, or scale the pool up")
    spaces[session] = {"names": {"__name__": "__main__"}, "running": 0, "used": time.monotonic()}
    try:
        space = spaces[session]
        while space["running"] or time.monotonic() - space["used"] < idle_seconds:
            time.sleep(0.2)  # short, because an interrupt comes between two of them
        return True
    finally:
        spaces.pop(session, None)


def namespaces() -> dict[str, dict[str, Any]]:
    """The namespaces of this worker, by the notebooks' sessions."""
    found: dict[str, dict[str, Any]] = get_worker().__dict__.setdefault("gpudask_namespaces", {})
    return found


def run_cell(session: str, source: str, filename: str, sent: dict[str, bytes]) -> dict[str, Any]:
    """Run a cell in its notebook's namespace.

    Args:
        session: the notebook's.
        source: the cell.
        filename: its name in tracebacks.
        sent: what the notebook gives to the namespace: each name's value, pickled.

    Returns:
        `lost`, where there is no such namespace; else `back`: the pickled value of each name that the cell assigned
        and that needs no device, `kept`: why the others stay, `shown`: its last expression, `failure`: its error.
    """
    spaces = namespaces()
    if session not in spaces:
        return {"lost": True}
    space = spaces[session]
    names = space["names"]
    space["running"] += 1
    try:
        try:
            names.update({name: pickle.loads(data) for name, data in sent.items()})  # noqa: S301 - its own
        except Exception as error:  # noqa: BLE001 - a module that is not here, for instance
            return {"failure": failure(error)}
        before = dict(names)
        answer = execute(source, filename, names)
        if len(names) > NAMES:
            for name in list(names)[NAMES:]:
                del names[name]
        return answer | brought_back(before, names)
    finally:
        space["running"] -= 1
        space["used"] = time.monotonic()


def execute(source: str, filename: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the source; what its last expression shows, or its error."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    try:
        tree = ast.parse(source, filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        # Not with this file's `from __future__`.
        exec(compile(tree, filename, "exec", dont_inherit=True), names)  # noqa: S102 - what a cell is for
        if last is None:
            return {}
        expression = ast.Expression(last.value)  # type: ignore[attr-defined]
        value = eval(compile(expression, filename, "eval", dont_inherit=True), names)  # noqa: S307
        return {} if value is None or source.rstrip().endswith(";") else {"shown": shown(value)}
    except BaseException as error:  # noqa: BLE001 - the notebook raises it
        return {"failure": failure(error)}


def shown(value: Any) -> dict[str, str]:
    """What a notebook displays of a value, by MIME type: of a frame a table, without moving the frame."""
    found = {"text/plain": repr(value)[:MOST_SHOWN]}
    try:
        html = value._repr_html_()  # the notebooks' protocol
    except Exception:  # noqa: BLE001 - most values have none
        html = None
    if isinstance(html, str) and len(html) <= MOST_SHOWN:
        found["text/html"] = html
    return found


def brought_back(before: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The names that were assigned: those that need no device pickled, and why the others stay."""
    back, kept, left = {}, {}, MOST_BYTES
    for name, value in names.items():
        is_assigned = name not in before or before[name] is not value
        if not is_assigned or name.startswith("_") or isinstance(value, ModuleType):
            continue
        try:
            data = pickled(value, left)
        except Exception as error:  # noqa: BLE001 - whatever a foreign type raises
            kept[name] = f"{type(value).__name__} cannot be sent: {error}"[:200]
            continue
        if data["device"]:
            kept[name] = f"{data['device'][0]} needs a device"
        else:
            back[name] = data["result"]
            left -= len(data["result"])
    return {"back": back, "kept": kept}
