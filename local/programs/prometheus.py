"""Prometheus and promtool: the machine's, else those of Debian's package, which is unpacked and never installed.

An installed package would start a Prometheus of its own, and bring the parts of its web pages; the two programs need
nothing of either.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from local.bundle.activation import active_bundle
from local.errors import LocalClusterError
from local.host.commands import run, succeeds
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import cache_dir

_PACKAGE = "prometheus"


@dataclass(frozen=True)
class Prometheus:
    """The server, and the tool that checks metrics, rules and configurations."""

    server: Path
    promtool: Path

    @property
    def present(self) -> bool:
        """Whether both are there."""
        return self.server.exists() and self.promtool.exists()


def ensure_prometheus(steps: Steps) -> Prometheus:
    """Find both programs, or fetch and unpack the package into the cache.

    Raises:
        LocalClusterError: this machine has neither them nor a package source; the message says what to install.
    """
    if found := _on_path():
        return found
    unpacked = cache_dir() / _PACKAGE
    programs = Prometheus(unpacked / "usr/bin/prometheus", unpacked / "usr/bin/promtool")
    if programs.present:
        return programs
    if active_bundle() or not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise LocalClusterError("prometheus and promtool: put both on PATH; see https://prometheus.io/download.")
    with exclusive(unpacked), steps.step("Fetching Prometheus"):
        if not programs.present:
            _fetch(unpacked)
    return programs


def _on_path() -> Prometheus | None:
    server, promtool = shutil.which("prometheus"), shutil.which("promtool")
    return Prometheus(Path(server), Path(promtool)) if server and promtool else None


def _fetch(target: Path) -> None:
    unfinished = target.with_name(f"{target.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    download = ["apt-get", "download", "-q", _PACKAGE]
    try:
        run(download, cwd=unfinished)
    except LocalClusterError:
        if not succeeds(["apt-get", "update", "-q"]):  # of old lists the package may be gone
            raise
        run(download, cwd=unfinished)
    (package,) = unfinished.glob("*.deb")
    run(["dpkg-deb", "--extract", str(package), str(unfinished)])
    package.unlink()
    shutil.rmtree(target, ignore_errors=True)
    unfinished.replace(target)
