"""A machine with nothing on it: a minimal Debian with Python as its root, and no network but its own loopback.

It shares the kernel with this one, and nothing else: mounts, network, processes are its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.eventually import eventually

_SETUP = """
set -e
root=$1 bundle=$2
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/bundle" "$root/old"
mount --bind "$bundle" "$root/bundle"
mount -o remount,bind,ro "$root/bundle"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
echo 127.0.0.1 localhost > "$root/etc/hosts"
ip link set lo up
cd "$root"
pivot_root . old
umount -l /old
mount --make-rshared /
touch /ready
while :; do sleep 1; done
"""
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "https_proxy": "http://127.0.0.1:9",
    "GOPROXY": "off",
    "PIP_NO_INDEX": "1",
}


@dataclass(frozen=True)
class BareMachine:
    """The machine whose first process is `pid`, here; it sees the bundle at /bundle."""

    pid: int

    def run(self, *command: str, stdin: str = "", seconds: float = 180) -> str:
        """Run a command there. Returns what it printed; an exit status other than 0 fails the test."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--ipc", "--uts"]
        done = subprocess.run(
            [*inside, *command],
            input=stdin,
            capture_output=True,
            text=True,
            env=_ENVIRONMENT,
            timeout=seconds,
            check=False,
        )
        print(done.stderr)
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def has(self, command: str) -> bool:
        """Whether a command is installed there."""
        return self.run("/bin/sh", "-c", f"command -v {command} || true") != ""


@contextmanager
def bare_machine(root_archive: Path, directory: Path, bundle: Path) -> Iterator[BareMachine]:
    """Start it with the root file system in `root_archive`, unpacked below `directory`; end all of it at the end."""
    root = directory / "root"
    root.mkdir()
    subprocess.run(["tar", "-xf", str(root_archive), "-C", str(root)], check=True)
    apart = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
    outer = subprocess.Popen([*apart, "/bin/sh", "-c", _SETUP, "sh", str(root), str(bundle)])
    try:
        eventually((root / "ready").exists, "the bare machine is set up")
        (pid,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        yield BareMachine(int(pid))
    finally:
        os.kill(outer.pid, signal.SIGKILL)  # and with it, by --kill-child, every process of the machine
        outer.wait()
