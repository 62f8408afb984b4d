"""Requirements of the machine: checked before anything starts, installed where Debian has them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.bundle.activation import active_bundle, cni_plugins
from local.errors import LocalClusterError
from local.host.commands import run, succeeds
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import cache_dir

_POLICY = Path("/usr/sbin/policy-rc.d")
_GIB = 1 << 30


@dataclass(frozen=True)
class Program:
    """A command or file that must be there, and the Debian package that brings it."""

    path: str
    package: str

    @property
    def present(self) -> bool:
        """Whether it is installed."""
        return Path(self.path).exists() if self.path.startswith("/") else shutil.which(self.path) is not None


@dataclass(frozen=True)
class Condition:
    """Something that no package brings: how to tell that it holds, and in one line how to get it."""

    holds: Callable[[], bool]
    advice: str


@dataclass(frozen=True)
class Requirements:
    """The requirements of one kind of command."""

    programs: tuple[Program, ...]
    conditions: tuple[Condition, ...] = ()


def _has_overlay() -> bool:
    filesystems = Path("/proc/filesystems")
    return "overlay" in filesystems.read_text() or succeeds(["modprobe", "overlay"])


def _has_bridge_filter() -> bool:
    bridge = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    return bridge.exists() or (succeeds(["modprobe", "br_netfilter"]) and bridge.exists())


def _has_controllers() -> bool:
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if unified.exists():
        return {"cpu", "memory", "pids"} <= set(unified.read_text().split())
    return all(Path("/sys/fs/cgroup", controller).is_dir() for controller in ("cpu", "memory", "pids"))


def _has_space(gibibytes: int) -> Callable[[], bool]:
    def holds() -> bool:
        place = cache_dir()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free >= gibibytes * _GIB

    return holds


_ROOT = Condition(lambda: os.geteuid() == 0, "root: run it with sudo, or as root in a virtual machine.")
_SPACE = Condition(_has_space(8), "8 GiB of free disk space under the cache: set GPUDASK_CACHE_DIR to a larger disk.")
_ETCD = Program("etcd", "etcd-server")

API_ONLY = Requirements((_ETCD,))
DEVICE_PLUGIN_BUILD = Requirements((Program("gcc", "gcc"), Program("/usr/include/stdlib.h", "libc6-dev")))
"""The device plugin calls the driver's library: the one program that takes a C compiler."""
BROWSER = Requirements(
    (
        Program("chromium", "chromium"),
        Program("/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf", "fonts-liberation"),
    )
)
"""A browser without a screen, and letters for it: the tests look at the page that `gpudask report` writes."""
IMAGES = Requirements(
    (Program("buildah", "buildah"), Program("runc", "runc"), Program("debootstrap", "debootstrap")),
    (_ROOT, _SPACE),
)


def cluster_requirements() -> Requirements:
    """Tell what a whole cluster needs."""
    return Requirements(
        (
            _ETCD,
            Program("containerd", "containerd"),
            Program("ctr", "containerd"),
            Program("runc", "runc"),
            Program(str(cni_plugins() / "bridge"), "containernetworking-plugins"),
            Program("iptables", "iptables"),
            Program("conntrack", "conntrack"),
            Program("ip", "iproute2"),
            Program("busybox", "busybox-static"),
            *(() if active_bundle() else (Program("ipset", "ipset"),)),  # for NetworkPolicies: see Settings
        ),
        (
            _ROOT,
            _SPACE,
            Condition(_has_overlay, "overlayfs: a kernel with CONFIG_OVERLAY_FS (`modprobe overlay`)."),
            Condition(_has_bridge_filter, "bridged packets in iptables: `modprobe br_netfilter`."),
            Condition(
                Path("/etc/hosts").exists, "/etc/hosts, which every pod gets: `echo 127.0.0.1 localhost > /etc/hosts`."
            ),
            Condition(_has_controllers, "the cgroup controllers cpu, memory and pids under /sys/fs/cgroup."),
        ),
    )


def ensure_requirements(requirements: Requirements, steps: Steps) -> None:
    """Check everything, then install the packages that are missing; with a bundle, none is installed.

    Raises:
        LocalClusterError: something is missing that cannot be installed here: one line each.
    """
    advice = [condition.advice for condition in requirements.conditions if not condition.holds()]
    packages = sorted({program.package for program in requirements.programs if not program.present})
    missing = ", ".join(program.path for program in requirements.programs if not program.present)
    if packages and active_bundle():
        advice.append(f"{missing}: not in the bundle either, and with one nothing is downloaded: pack it anew.")
    elif packages and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        advice.append(f"{missing}: `apt-get install {' '.join(packages)}` as root, or your system's packages.")
    if advice:
        raise LocalClusterError("This machine lacks:\n" + "\n".join(f"- {line}" for line in advice))
    if packages:
        log = cache_dir() / "logs" / "apt.log"
        with exclusive(cache_dir() / "apt"), steps.step(f"Installing {' '.join(packages)}", log=log):
            _install(packages, log)


def _install(packages: Sequence[str], log: Path) -> None:
    """Install Debian packages, and keep their own etcd and containerd services from starting."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    ours = not _POLICY.exists()
    if ours:
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    try:
        run(["apt-get", "update", "-q"], environment=quiet, log=log.with_name("apt-update.log"))
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], environment=quiet, log=log)
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)
