"""Whether client, scheduler and workers run the same Python and packages. Pure but for `own`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributed.versions import get_versions

Json = dict[str, Any]
# What crosses between them: serialised functions, graphs, messages.
COMPARED = ("python", "dask", "distributed", "msgpack", "cloudpickle", "toolz", "numpy", "pandas", "lz4")
# Bytecode of another minor version cannot be run: the first function of a notebook fails.
_FATAL = "python"


@dataclass(frozen=True)
class Disagreement:
    """What differs, as a table, and whether functions can pass at all."""

    table: str
    fatal: bool


def own() -> Json:
    """This process' versions, in the shape of Dask's answers."""
    answer: Json = get_versions()
    return answer


def disagreement(client: Json, scheduler: Json, workers: dict[str, Json]) -> Disagreement | None:
    """What differs between client, scheduler and workers; None where nothing does.

    Args:
        client: Dask's `get_versions()`, as the other two.
        scheduler: its answer.
        workers: by name; those that did not answer are left out.
    """
    rows = []
    fatal = False
    for package in COMPARED:
        here, there = _version(client, package), _version(scheduler, package)
        of_workers = sorted({_version(worker, package) for worker in workers.values()})
        known = {version for version in (here, there, *of_workers) if version != "none"}
        if len(known) < 2 and (package in {"numpy", "pandas", "lz4"} or len({here, there, *of_workers}) < 2):  # noqa: PLR2004
            continue
        if package == _FATAL:
            fatal = len({_minor(version) for version in known}) > 1
            if not fatal:  # another patch release runs the same functions
                continue
        rows.append(f"  {package}: client {here}, scheduler {there}, workers {', '.join(of_workers) or 'none yet'}")
    return Disagreement("\n".join(rows), fatal) if rows else None


def _version(answer: Json, package: str) -> str:
    if package == "python":
        return str(dict(answer.get("host", {})).get("python", "none")).rsplit(".final", 1)[0]
    return str(dict(answer.get("packages", {})).get(package) or "none")


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])
