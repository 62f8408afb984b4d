"""Comparison of the Python and package versions of client, scheduler and workers; a warning where they differ."""

from __future__ import annotations

import asyncio
import logging
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from distributed.versions import VersionMismatchWarning, get_versions

from gpudask.api import Json
from gpudask.kubecluster.errors import KubeClusterError
from gpudask.kubecluster.timing import Timing

logger = logging.getLogger(__name__)

Release = tuple[int, ...]
# What crosses between them: serialised functions, graphs, messages.
COMPARED = ("python", "dask", "distributed", "msgpack", "cloudpickle", "toolz", "numpy", "pandas", "lz4")
# Who lacks one of these may still do without it.
_OPTIONAL = frozenset({"numpy", "pandas", "lz4"})
_PLAIN_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!-]{0,40}")
_OF_DASK = "Mismatched versions found"  # how its warning begins
# The release of distributed in which what a program sends as a graph changed: neither side reads the other's, and the
# futures of a program would be cancelled without a word of why.
_GRAPHS_CHANGED: Release = (2025, 4)


@dataclass(frozen=True)
class Disagreement:
    """A difference of versions.

    Attributes:
        table: a line for each package, with the versions of all three.
        fatal: why no function or graph can pass; empty where most of them do.
        inside: whether scheduler and workers differ among themselves.
        command: what gives this program the scheduler's packages; empty where that is no matter of packages.
    """

    table: str
    fatal: str
    inside: bool
    command: str = ""


@dataclass(frozen=True)
class _Row:
    """The versions of one package."""

    package: str
    client: str
    scheduler: str
    workers: tuple[str, ...]

    @property
    def versions(self) -> set[str]:
        return {version for version in (self.client, self.scheduler, *self.workers) if version != "none"}

    @property
    def differs(self) -> bool:
        if self.package == "python":  # another patch release runs the same functions
            return bool(self.fatal)
        lacking = self.package not in _OPTIONAL and "none" in {self.client, self.scheduler, *self.workers}
        return len(self.versions) + lacking > 1

    @property
    def inside(self) -> bool:
        return len({self.scheduler, *self.workers} - {"none"}) > 1

    @property
    def fatal(self) -> str:
        if self.package == "python" and len({_release(version) for version in self.versions}) > 1:
            return "functions of one minor version of Python do not run in another"
        sides = {_release(version) >= _GRAPHS_CHANGED for version in (self.client, self.scheduler) if version != "none"}
        if self.package == "distributed" and len(sides) > 1:
            return f"a distributed before {_text(_GRAPHS_CHANGED)} and a later one cannot read each other's graphs"
        return ""

    def __str__(self) -> str:
        workers = ", ".join(self.workers) or "none yet"
        return f"  {self.package}: client {self.client}, scheduler {self.scheduler}, workers {workers}"


async def check_versions(scheduler: Any, name: str, body: Json, timing: Timing) -> None:
    """Compare this program with the cluster `name`, and warn of what differs.

    Args:
        scheduler: Dask's rpc to it.
        name: the cluster's.
        body: the cluster, whose image is named; empty where it was not read.
        timing: how long the answers may take.

    Raises:
        KubeClusterError: nothing would pass: another minor version of Python, or a distributed that writes other
            graphs.
    """
    try:
        async with asyncio.timeout(timing.versions_seconds):
            theirs = await scheduler.versions()
        async with asyncio.timeout(timing.versions_seconds):
            workers = await scheduler.broadcast(msg={"op": "versions"}, on_error="ignore")
    except Exception as error:  # noqa: BLE001 - older or busier ones may not answer: Dask compares again by itself
        logger.debug("versions were not compared: %r", error)
        return
    found = disagreement(own(), theirs, {key: answer for key, answer in workers.items() if isinstance(answer, dict)})
    if found is None:
        return
    images = images_of(body)
    named = f"image {' or '.join(images)}" if images else "the cluster's image"
    failure = _failure(name, found, named)
    if found.fatal:
        raise failure
    warnings.warn(str(failure), stacklevel=2)
    # A Client would give Dask's own, a longer table without a word of what to do.
    warnings.filterwarnings("ignore", message=_OF_DASK, category=VersionMismatchWarning)


def _failure(name: str, found: Disagreement, images: str) -> KubeClusterError:
    """The message of an error, and of a warning too."""
    cure = f"Run this program in {images}, or create the cluster with an image= that has what it has"
    if found.inside:
        cure = f"Give the scheduler and all pools images with the same versions (now {images}), and this program too"
    elif found.command and not found.fatal:
        cure = f"{found.command} makes them equal. Or {cure[0].lower()}{cure[1:]}"
    if not found.fatal:
        cure = f"Most work passes all the same. Where some does not: {cure[0].lower()}{cure[1:]}"
    return KubeClusterError(
        f"this program and cluster {name!r} run different versions",
        reason=f"{found.fatal or 'they differ'}:\n{found.table}",
        next_step=cure,
    )


def images_of(body: Json) -> list[str]:
    """The images that a cluster names, each once."""
    spec = body.get("spec") or {}
    sections = [spec, spec.get("scheduler") or {}, *spec.get("pools", [])]
    return list(dict.fromkeys(section["image"] for section in sections if section.get("image")))


def own() -> Json:
    """This process' versions, in the shape of Dask's answers."""
    answer: Json = get_versions()
    return answer


def disagreement(client: Json, scheduler: Json, workers: dict[str, Json]) -> Disagreement | None:
    """The difference of versions between client, scheduler and workers; None where there is none.

    Args:
        client: Dask's `get_versions()`, as the other two.
        scheduler: its answer.
        workers: by name; those that did not answer are left out.
    """
    rows = [row for package in COMPARED if (row := _row(package, client, scheduler, workers.values())).differs]
    if not rows:
        return None
    return Disagreement(
        table="\n".join(str(row) for row in rows),
        fatal="; ".join(row.fatal for row in rows if row.fatal),
        inside=any(row.inside for row in rows),
        command=_command(rows),
    )


def _command(rows: list[_Row]) -> str:
    """The `pip install` of what differs, in the scheduler's versions; only plain ones: it may say what it likes."""
    wanted = [
        f"{row.package}=={row.scheduler}"
        for row in rows
        if row.package != "python" and row.client != row.scheduler and _PLAIN_VERSION.fullmatch(row.scheduler)
    ]
    return f"pip install {' '.join(wanted)}" if wanted else ""


def _row(package: str, client: Json, scheduler: Json, workers: Iterable[Json]) -> _Row:
    of_workers = tuple(sorted({_version(worker, package) for worker in workers}))
    return _Row(package, _version(client, package), _version(scheduler, package), of_workers)


def _version(answer: Json, package: str) -> str:
    if package == "python":
        return str(dict(answer.get("host", {})).get("python", "none")).rsplit(".final", 1)[0]
    return str(dict(answer.get("packages", {})).get(package) or "none")


def _release(version: str) -> Release:
    """Year and month of a Dask release, major and minor version of a Python."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _text(release: Release) -> str:
    return ".".join(str(number) for number in release)
